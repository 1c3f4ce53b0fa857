/** The used parts of packages in benches/rivals, so that types can be checked without installing them. */

declare module "@electric-sql/pglite" {
  export const PGlite: { create(options: object): Promise<object> };
}

declare module "@electric-sql/pglite/worker" {
  export function worker(options: { init(options: object): Promise<object> }): void;
  export class PGliteWorker {
    static create(
      worker: Worker,
      options: { dataDir: string; relaxedDurability: boolean },
    ): Promise<PGliteWorker>;
    readonly isLeader: boolean;
    exec(statement: string): Promise<unknown>;
    query(statement: string, values: readonly unknown[]): Promise<unknown>;
  }
}

declare module "dexie" {
  interface Table<T, K> {
    bulkGet(keys: readonly K[]): Promise<(T | undefined)[]>;
    bulkPut(items: readonly T[], keys: readonly K[]): Promise<unknown>;
    orderBy(key: string): { limit(count: number): { toArray(): Promise<T[]> } };
    put(row: T): Promise<unknown>;
    toArray(): Promise<T[]>;
  }
  export class Dexie {
    constructor(name: string, options?: { chromeTransactionDurability: "relaxed" });
    version(number: number): { stores(schema: Readonly<Record<string, string>>): unknown };
    open(): Promise<unknown>;
    table<T, K = string>(name: string): Table<T, K>;
  }
}

declare module "idb-keyval" {
  export function set(key: string, value: unknown): Promise<void>;
  export function values<T>(): Promise<T[]>;
}
