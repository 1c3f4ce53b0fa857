/** Registry of the databases that are open or being opened in this realm. All handles of one share an entry. */

import type { Settings } from "../session/options.js";
import type { Session } from "../session/session.js";

/** The reason with which the program aborted an opening. */
export interface AbortReason {
  readonly reason: unknown;
}

/** The settings and the result of an opening. */
export interface Opening {
  readonly settings: Settings;
  readonly session: Promise<Session>;
  /** Set if the signal or the progress listener aborted the opening. */
  readonly interrupted: AbortReason | undefined;
}

/** The common methods of a map and a weak map. */
interface Entries {
  get(identity: object): Entry | undefined;
  set(identity: object, entry: Entry): unknown;
  delete(identity: object): boolean;
}

const byName: Entries = new Map<unknown, Entry>();
/** Identities that are objects are held weakly, because a Durable Object ends without closing its databases. */
const byObject: Entries = new WeakMap<object, Entry>();

/** The open databases, by identity. */
const entries = {
  get: (identity: unknown) => mapOf(identity).get(identity as object),
  set: (identity: unknown, entry: Entry) => mapOf(identity).set(identity as object, entry),
  delete: (identity: unknown) => mapOf(identity).delete(identity as object),
};

function mapOf(identity: unknown): Entries {
  return typeof identity === "object" && identity !== null ? byObject : byName;
}

/** An open database, and the number of its handles. */
export class Entry {
  readonly opening: Opening;
  private readonly identity: unknown;
  private handles: number;

  private constructor(identity: unknown, opening: Opening) {
    this.opening = opening;
    this.identity = identity;
    this.handles = 0;
  }

  static find(identity: unknown): Entry | undefined {
    return entries.get(identity);
  }

  static add(identity: unknown, opening: Opening): Entry {
    const entry = new Entry(identity, opening);
    entries.set(identity, entry);
    return entry;
  }

  /** Adds a handle. */
  join(): void {
    this.handles += 1;
  }

  /** Removes a handle. Returns whether it was the last one. */
  leave(): boolean {
    this.handles -= 1;
    if (this.handles === 0) this.forget();
    return this.handles === 0;
  }

  /** Removes the entry, so that the next open starts again. */
  forget(): void {
    if (entries.get(this.identity) === this) entries.delete(this.identity);
  }
}

export function isOpen(identity: unknown): boolean {
  return entries.get(identity) !== undefined;
}
