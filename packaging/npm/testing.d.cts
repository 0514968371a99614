/** The clock of a store. It never runs backwards: an advance lasts as long as the store. */
export interface Clock {
  now(): Promise<Date>;
  /** Advances the clock immediately, and returns the store's time. */
  advance(milliseconds: number): Promise<Date>;
  freeze(): Promise<Date>;
  resume(): Promise<Date>;
  /** Deletes every item that has expired by the store's time, and returns how many. */
  sweep(): Promise<number>;
}

interface Running extends AsyncDisposable {
  /** The process id. */
  readonly id: number;
  /** The program's folder, which `stop` removes. */
  readonly folder: string;
  readonly clock: Clock;
  /** The environment variables by which AWS SDKs find the endpoints. */
  readonly environment: Record<string, string>;
  /** The output of the program so far. */
  log(): string;
  /** Shuts the program down, and kills it if it is still running after 10 seconds. */
  stop(): Promise<void>;
}

/** A separate `local-store` on a free port, with one replica. */
export interface Store extends Running {
  readonly endpoint: string;
  /** Deletes all tables, and returns how many. */
  empty(): Promise<number>;
}

/** A `weir up` of a template on free ports, with an empty store. */
export interface Up extends Running {
  readonly dynamodb: string;
  readonly s3: string;
  readonly invoke: string;
  /** Runs a `weir` command against this `weir up`. */
  weir(...parameters: string[]): Promise<{ code: number | string; stdout: string; stderr: string }>;
  /** Waits until the functions have processed every record, including the records of their own writes. */
  settle(milliseconds?: number): Promise<void>;
}

export function startStore(): Promise<Store>;
export function startUp(options: {
  /** A path, or a URL such as `new URL('template.yaml', import.meta.url)`. */
  template: string | URL;
  parameters?: Record<string, string | number>;
  /** How long the start may take; 600,000 by default. */
  milliseconds?: number;
}): Promise<Up>;
