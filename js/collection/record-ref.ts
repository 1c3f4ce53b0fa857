/** Handles of records that stay valid across yields and writes. */

import type { Engine } from "../engine/engine.js";

/**
 * A handle of one record of a collection, whatever is written to it. Made by `collection.ref(key)`.
 *
 * ```ts
 * const stock = products.ref("yeezy");
 * await somethingElse();
 * draw(stock.value?.stock);
 * ```
 */
export class Ref<View> {
  private readonly engine: Engine;
  private readonly find: () => View | undefined;
  private view: View | undefined;
  /** The engine's `changes` when the view was made. While it is equal, the record has not moved. */
  private changesSeen: number;

  /** @internal */
  constructor(engine: Engine, find: () => View | undefined) {
    this.engine = engine;
    this.find = find;
    this.view = undefined;
    this.changesSeen = -1;
  }

  /**
   * The current value of the record, or `undefined` if there is none. Reading it costs two nanoseconds as
   * long as nothing was written; after a write, the key is looked up once. A view is valid as long as one
   * from `get`: do not keep it, read `value` again.
   *
   * @throws DatabaseClosedError after `close`
   */
  get value(): View | undefined {
    return this.changesSeen === this.engine.changes ? this.view : this.lookUp();
  }

  private lookUp(): View | undefined {
    this.view = this.find();
    this.changesSeen = this.engine.changes;
    return this.view;
  }
}
