/** The used part of Dexie in benches/rivals, so that types can be checked without installing it. */

declare module "dexie" {
  interface Table<T, K> {
    bulkGet(keys: readonly K[]): Promise<(T | undefined)[]>;
    bulkPut(items: readonly T[], keys: readonly K[]): Promise<unknown>;
    toArray(): Promise<T[]>;
  }
  export class Dexie {
    constructor(name: string, options: { chromeTransactionDurability: "relaxed" });
    version(number: number): { stores(schema: Readonly<Record<string, string>>): unknown };
    open(): Promise<unknown>;
    table<T, K>(name: string): Table<T, K>;
  }
}
