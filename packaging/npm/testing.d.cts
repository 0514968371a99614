/** The clock of a store. It never goes back: an advance lasts as long as the store. */
export interface Clock {
  now(): Promise<Date>;
  /** Lets time pass at once, and returns the store's time. */
  advance(milliseconds: number): Promise<Date>;
  freeze(): Promise<Date>;
  resume(): Promise<Date>;
  /** Deletes every item that has expired by the store's time, and returns how many. */
  sweep(): Promise<number>;
}

interface Running extends AsyncDisposable {
  /** The number of the process. */
  readonly id: number;
  /** Its folder, which `stop` removes. */
  readonly folder: string;
  readonly clock: Clock;
  /** The variables by which AWS SDKs find its endpoints. */
  readonly environment: Record<string, string>;
  /** What the program has written. */
  log(): string;
  /** Ends the program in order, or kills it after 10 seconds. */
  stop(): Promise<void>;
}

/** A `local-store` of its own on a free port, with one replica. */
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
  /** Runs a `weir` command about what runs here. */
  weir(...parameters: string[]): Promise<{ code: number | string; stdout: string; stderr: string }>;
  /** Waits until the functions have processed every record, with what they wrote because of it. */
  settle(milliseconds?: number): Promise<void>;
}

export function startStore(): Promise<Store>;
export function startUp(options: {
  /** A path, or a URL such as `new URL('template.yaml', import.meta.url)`. */
  template: string | URL;
  parameters?: Record<string, string | number>;
  /** How long it may take to start; 600,000 by default. */
  milliseconds?: number;
}): Promise<Up>;
