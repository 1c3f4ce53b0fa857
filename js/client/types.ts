/** What a worker's default export tells about what it serves. Types only. */

/** The functions that clients may call. The first argument, the database, is given by the worker. */
export type AnyProcedures = Readonly<Record<string, (db: never, ...args: never[]) => unknown>>;

/** As `connect` sees what `serve` gave. */
export interface ServedTypes<P extends AnyProcedures = AnyProcedures> {
  readonly procedures: P;
}

/** The same function, called from far away. */
export type Remote<F> = F extends (db: never, ...args: infer A) => infer R
  ? (...args: A) => Promise<Copied<R>>
  : never;

/** What arrives: views are copies. */
export type Copied<R> = R extends Uint8Array ? Uint8Array<ArrayBuffer> : R;

/** All of them by name. */
export type Calls<S extends ServedTypes> = {
  readonly [Name in keyof S["procedures"]]: Remote<S["procedures"][Name]>;
};
