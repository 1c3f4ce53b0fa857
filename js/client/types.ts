/** The types of a served database, taken from a worker's default export. Types only. */

import type { IndexValue } from "../collection/indexes.js";
import type { Plain } from "../collection/live.js";
import type { CustomCodec, Declared } from "../struct/codec.js";
import type { KeyInput, KeyOf, KeySpec } from "../struct/key.js";
import type { Tx, TxPart } from "./optimistic.js";
import type { RemoteCollection } from "./remote-collection.js";

/** Functions that clients may call. The worker passes the database as their first argument. */
export type AnyProcedures = Readonly<Record<string, (db: never, ...args: never[]) => unknown>>;

/** Collections as they were given to `serve`. */
export type AnyCollections = Readonly<Record<string, unknown>>;

/** The types of a served database, as `connect` sees them. */
export interface ServedTypes<
  P extends AnyProcedures = AnyProcedures,
  C extends AnyCollections = AnyCollections,
> {
  readonly procedures: P;
  readonly collections: C;
}

/** What the package's own worker serves: no procedures and no collections. */
export type Nothing = ServedTypes<Record<never, never>, Record<never, never>>;

type CodecOf<T> = T extends { readonly of: infer C } ? C : T;
type KeySpecOf<T> = T extends { readonly of: unknown; readonly key: infer S extends KeySpec }
  ? S
  : undefined;
type IndexSpecsOf<T> = T extends { readonly of: unknown; readonly indexes: infer I }
  ? I
  : Record<never, never>;
/** The value by which each index is ordered, by the name of the index. */
type IndexesOf<View, Specs, Input> = {
  readonly [Name in keyof Specs]: IndexValue<View, Specs[Name], Input>;
};
type ViewOf<C> =
  C extends Declared<infer View, infer _W, infer _I>
    ? View
    : C extends CustomCodec<infer T>
      ? T
      : never;
type InputOf<C> =
  C extends Declared<infer _V, infer _W, infer Input>
    ? Input
    : C extends CustomCodec<infer T>
      ? T
      : never;

/** A collection of a client. (A condition that always holds, so that editors show the resulting type.) */
export type RemoteCollectionOf<T> = unknown extends T
  ? RemoteCollection<unknown, unknown, unknown, unknown, Record<never, never>>
  : RemoteCollection<
      KeyOf<KeySpecOf<T>>,
      KeyInput<KeySpecOf<T>>,
      Plain<ViewOf<CodecOf<T>>>,
      InputOf<CodecOf<T>>,
      IndexesOf<ViewOf<CodecOf<T>>, IndexSpecsOf<T>, InputOf<CodecOf<T>>>,
      ViewOf<CodecOf<T>>
    >;

/** All collections, by name. */
export type Collections<S extends ServedTypes> = {
  readonly [Name in keyof S["collections"]]: RemoteCollectionOf<S["collections"][Name]>;
};

/** A collection in a client's transaction. */
type PartOf<T> = unknown extends T
  ? TxPart<unknown, unknown, unknown>
  : TxPart<KeyInput<KeySpecOf<T>>, Plain<ViewOf<CodecOf<T>>>, InputOf<CodecOf<T>>>;

/**
 * The argument of the function of `client.transaction`: raw keys, the collections by `collection(name)`, and,
 * by name, those that `connect` was given.
 */
export type TxOf<S extends ServedTypes, Declared extends keyof S["collections"] = never> = Tx & {
  /** A collection that the worker serves. */
  collection<Name extends keyof S["collections"] & string>(
    name: Name,
  ): PartOf<S["collections"][Name]>;
} & { readonly [Name in Declared]: PartOf<S["collections"][Name]> };

/** A procedure as a client calls it. */
export type Remote<F> = F extends (db: never, ...args: infer A) => infer R
  ? (...args: A) => Promise<Copied<R>>
  : never;

/** Types that a message carries unchanged: `Copied` does not look for views in them. */
type Whole =
  | string
  | number
  | bigint
  | boolean
  | symbol
  | null
  | undefined
  | Date
  | RegExp
  | Error
  | ArrayBuffer
  | ArrayBufferView
  | ((...args: never[]) => unknown);

/**
 * The result of a procedure as a client receives it, with copies in the place of views at any depth. Below five
 * levels nothing is replaced, since types may contain themselves.
 */
export type Copied<R, Level extends 0[] = []> = unknown extends R
  ? R
  : R extends Uint8Array
    ? Uint8Array<ArrayBuffer>
    : R extends Whole
      ? R
      : R extends { snapshot(): infer Plain }
        ? Plain
        : Level["length"] extends 5
          ? R
          : R extends Map<infer K, infer V>
            ? Map<Copied<K, [...Level, 0]>, Copied<V, [...Level, 0]>>
            : R extends Set<infer V>
              ? Set<Copied<V, [...Level, 0]>>
              : { [K in keyof R]: Copied<R[K], [...Level, 0]> };

/** All procedures, by name. */
export type Calls<S extends ServedTypes> = {
  readonly [Name in keyof S["procedures"]]: Remote<S["procedures"][Name]>;
};
