// Processes the changes of a table, in order, and reports the first one that fails.

const REMEMBERED_MAX = 10_000;
const remembered = new Set();

/** Makes a handler that calls `process` for each change; tests pass their own. */
export function handlerOf(process) {
  return async (event) => {
    for (const record of event.Records) {
      const { eventID, eventName, dynamodb } = record;
      if (remembered.has(eventID)) continue;
      try {
        await process(eventID, eventName, dynamodb);
      } catch (error) {
        console.error(JSON.stringify({ eventID, error: String(error) }));
        // Lambda delivers the records from this one on again, and not the entire batch.
        return { batchItemFailures: [{ itemIdentifier: dynamodb.SequenceNumber }] };
      }
      remembered.add(eventID);
      if (remembered.size > REMEMBERED_MAX) remembered.delete(remembered.values().next().value);
    }
    return { batchItemFailures: [] };
  };
}

/**
 * Does the work for one change. Another instance may get the same change once more: make an effect
 * outside of this process idempotent, such as by a write on condition that the event ID is new.
 */
async function processChange(eventID, eventName, change) {
  console.log(JSON.stringify({ eventID, eventName, keys: change.Keys }));
}

export const handler = handlerOf(processChange);
