/** Handles of records that stay valid across yields and writes. */

import type { Engine } from "../engine.js";

/**
 * One record of a collection, whatever becomes of it. Made by `collection.ref(key)`.
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
  /** The engine's `changes` when the view was made. As long as it is that, nothing has moved. */
  private seen: number;

  /** @internal */
  constructor(engine: Engine, find: () => View | undefined) {
    this.engine = engine;
    this.find = find;
    this.view = undefined;
    this.seen = -1;
  }

  /**
   * The record's value as it is now, `undefined` when there is none. Asking costs two nanoseconds as
   * long as nothing was written; after that the key is looked up once. A view is good as long as one
   * of `get`; do not keep it but ask again.
   *
   * @throws DatabaseClosedError after `close`
   */
  get value(): View | undefined {
    return this.seen === this.engine.changes ? this.view : this.look();
  }

  private look(): View | undefined {
    this.view = this.find();
    this.seen = this.engine.changes;
    return this.view;
  }
}
