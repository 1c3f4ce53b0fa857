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
