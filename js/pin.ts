/** Pins: values that stay as they are for as long as somebody holds them. */

import { dispose } from "./dispose.js";
import { StaleViewError } from "./errors.js";
import type { Session } from "./session.js";

/**
 * A value that was pinned by `db.pin(key)`: its bytes stay in memory and unchanged until it is
 * disposed, whatever is written to its key meanwhile, and also across yields.
 *
 * ```ts
 * using lease = db.pin("picture");
 * await somethingElse();
 * draw(lease?.bytes);
 * ```
 *
 * It costs the memory of its value until it is disposed. Closing the handle that made it disposes it.
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
   * The bytes of the value when it was pinned, as a view of the database's memory. Each view is good
   * until your code yields, like that of `get`; ask again afterwards. It is for reading only.
   *
   * @throws StaleViewError after `dispose`
   * @throws DatabaseClosedError after `close`
   */
  get bytes(): Uint8Array<ArrayBuffer> {
    const session = this.source();
    if (session.gate !== 0) session.admitRead();
    if (!this.held) {
      throw new StaleViewError(
        "This pin was disposed, so that its bytes are no longer held. Pin the key again, or copy " +
          "the bytes in time with .slice().",
      );
    }
    return session.pinnedBytes(this.handle);
  }

  /** Lets the value go. Views of it are good until your code yields. Doing it twice is legal. */
  dispose(): void {
    if (!this.held) return;
    this.held = false;
    this.forget(this);
    this.source().unpin(this.handle);
  }

  /** Lets the value go at the end of a `using` block. */
  [dispose](): void {
    this.dispose();
  }
}
