/** One handle of an open database, from its making to its closing. */

import { asyncDispose } from "./dispose.js";
import { type Format, INSPECT } from "./inspect.js";
import type { Pin } from "./pin.js";
import type { Source } from "./scan.js";
import { closedSession, type Session } from "./session.js";

/** What connects the calls of a program to the session that several handles share. */
export class Handle {
  protected session: Session;
  /** The session for those that this handle hands out and that are asked more often than pins. */
  protected readonly handle: { session: Session };
  protected readonly source: Source;
  protected readonly pins: Set<Pin>;
  private readonly leave: () => boolean;
  private readonly onError: ((error: Error) => void) | undefined;
  private closing: Promise<void> | undefined;

  /** @internal */
  constructor(
    session: Session,
    leave: () => boolean,
    onError: ((error: Error) => void) | undefined,
  ) {
    this.session = session;
    this.handle = { session };
    this.source = () => this.session;
    this.pins = new Set();
    this.leave = leave;
    // A function of its own, so that one listener given to two handles is heard for each.
    this.onError = onError === undefined ? undefined : (error) => onError(error);
    this.closing = undefined;
    session.addListener(this.onError);
  }

  /**
   * Closes this handle; all writes are committed and flushed first. The last handle closes the file, ends all
   * views and gives the memory back. Calling `close` again returns the same promise.
   *
   * The file is closed and free for others even if the promise rejects.
   *
   * @throws (rejects) QuotaExceededError, StorageError if the last writes failed
   * @throws (rejects) ReentrancyError inside a transaction or a callback; the handle stays open
   */
  close(): Promise<void> {
    if (this.closing !== undefined) return this.closing;
    try {
      this.session.admitClose();
    } catch (error) {
      // Refused and not begun: it is called again when what stood in its way is over.
      return Promise.reject(error);
    }
    this.closing = this.closeOnce();
    return this.closing;
  }

  private async closeOnce(): Promise<void> {
    const { session } = this;
    for (const pin of this.pins) pin.dispose();
    this.session = closedSession(session);
    this.handle.session = this.session;
    // Refs of this handle look at the gate no earlier than at this.
    session.engine.changes += 1;
    try {
      if (this.leave()) session.end();
      else session.leave();
    } finally {
      session.removeListener(this.onError);
    }
  }

  /** Closes this handle at the end of an `await using` block. */
  [asyncDispose](): Promise<void> {
    return this.close();
  }

  /** @internal A console is not to throw, whatever has happened to the database. */
  [INSPECT](_depth: number, options: unknown, format: Format): string {
    const { name, engine, durability } = this.session;
    let facts: object;
    try {
      facts = this.closing === undefined ? { keys: engine.count(), durability } : { closed: true };
    } catch (error) {
      facts = { error };
    }
    return `Database "${name}" ${format(facts, options)}`;
  }
}
