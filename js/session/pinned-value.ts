/** Pins: values whose bytes stay in memory, unchanged, until the pin is disposed. */

import { StaleViewError } from "../errors/index.js";
import { dispose } from "../util/dispose.js";
import type { Session } from "./session.js";

/**
 * A value pinned by `db.pin(key)`. Its bytes stay in memory, unchanged, until the pin is disposed, also
 * across yields and whatever is written to its key meanwhile.
 *
 * ```ts
 * using lease = db.pin("picture");
 * await somethingElse();
 * draw(lease?.bytes);
 * ```
 *
 * It takes the memory of its value until it is disposed. Closing the handle that made it disposes it.
 */
export class Pin {
  private readonly source: () => Session;
  private readonly handle: number;
  private readonly forget: (pin: Pin) => void;
  private held: boolean;

  /** @internal */
  constructor(source: () => Session, handle: number, forget: (pin: Pin) => void) {
    this.source = source;
    this.handle = handle;
    this.forget = forget;
    this.held = true;
  }

  /**
   * The bytes of the value when it was pinned, as a view of the database's memory. Each view is valid until
   * your code yields, like that of `get`; read `bytes` again afterwards. It is for reading only.
   *
   * @throws StaleViewError after `dispose`
   * @throws DatabaseClosedError after `close`
   */
  get bytes(): Uint8Array<ArrayBuffer> {
    const session = this.source();
    if (session.guard.gate !== 0) session.guard.assertReadable();
    if (!this.held) {
      throw new StaleViewError(
        "This pin was disposed, so its bytes are no longer held. Pin the key again, or copy the " +
          "bytes in time with .slice().",
      );
    }
    return session.pinnedBytes(this.handle);
  }

  /** Releases the value. Views of it are valid until your code yields. It may be called twice. */
  dispose(): void {
    if (!this.held) return;
    this.held = false;
    this.forget(this);
    this.source().unpin(this.handle);
  }

  /** Releases the value at the end of a `using` block. */
  [dispose](): void {
    this.dispose();
  }
}
