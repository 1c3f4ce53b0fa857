/** The databases that are open or being opened in this realm: each once, with all of its handles. */

import type { Settings } from "../session/options.js";
import type { Session } from "../session/session.js";

/** That an opening was ended by the program, and with which reason. */
export interface Interruption {
  readonly reason: unknown;
}

/** How a database was opened, and what came of it. */
export interface Opening {
  readonly settings: Settings;
  readonly session: Promise<Session>;
  /** Why the opening was given up, if its signal or its listener had it so. */
  readonly interrupted: Interruption | undefined;
}

/** What a map and a weak map have in common. */
interface Entries {
  get(identity: object): Entry | undefined;
  set(identity: object, entry: Entry): unknown;
  delete(identity: object): boolean;
}

const byName: Entries = new Map<unknown, Entry>();
/** An object's identity goes with its storage: a Durable Object ends without closing anything. */
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

/** An open database and how many handles it has. */
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

  /** One more handle. */
  join(): void {
    this.handles += 1;
  }

  /** One handle less. Says whether it was the last. */
  leave(): boolean {
    this.handles -= 1;
    if (this.handles === 0) this.forget();
    return this.handles === 0;
  }

  /** The next who opens it is to try anew. */
  forget(): void {
    if (entries.get(this.identity) === this) entries.delete(this.identity);
  }
}

export function isOpen(identity: unknown): boolean {
  return entries.get(identity) !== undefined;
}
