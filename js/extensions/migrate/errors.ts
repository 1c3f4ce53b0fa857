/** The error of migrations from other stores. */

import { NamedError, named, type VarveErrorOptions } from "../../errors/base.js";

/** Where a migration found what it refused. */
export interface MigrationPlace {
  /** The name of the object store; of other sources, what is read. */
  readonly store?: string | undefined;
  /** The record's key in the old store; of SQLite, the number of the row, from 0. */
  readonly key?: unknown;
  /** The part of the value, such as `.address.since` or `.tags[2]`; empty for the value itself. */
  readonly path?: string | undefined;
}

/**
 * Data could not be moved as it is: a value or key has no form in the new collection, a key is taken, the old store
 * has changed meanwhile, or another tab needs it. The message names the record and says what to do. The old store was not
 * changed. Call the function again to go on: what was copied stays, and nothing is copied twice.
 */
export class MigrationError extends NamedError {
  /** The name of the object store; `undefined` if it concerns no single one. */
  readonly store: string | undefined;
  /** The record's key in the old store; `undefined` if it concerns no single record. */
  readonly key: unknown;
  /** The part of the value; `undefined` if it concerns no value. */
  readonly path: string | undefined;

  constructor(message: string, options: VarveErrorOptions & MigrationPlace = {}) {
    super(message, options);
    this.store = options.store;
    this.key = options.key;
    this.path = options.path;
  }

  static {
    named(MigrationError, "MigrationError");
  }
}
