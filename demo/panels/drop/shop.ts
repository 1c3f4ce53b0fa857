/** A tab's side: its client, its buyers, and the end of its worker. */

import { connect } from "varve/client";
import type served from "./drop-db.js";

let worker: Worker | undefined;

export const shop = connect<typeof served>("live-drop", {
  worker() {
    worker = new Worker(new URL("./drop-db.js", import.meta.url), { type: "module" });
    return worker;
  },
});

/** Ends this tab's worker at once, whatever it is doing. Nothing is committed, flushed or closed. */
export function killWorker(): void {
  worker?.terminate();
}

/** How often each buyer buys. */
const PER_SECOND = 40;

/** The buyers of this tab in one drop. */
export class Buyers {
  /** How many purchases were answered with "bought". */
  answered = 0;
  /** The longest wait for an answer. */
  longestMs = 0;
  #isOver = false;

  constructor(
    readonly drop: number,
    readonly id: string,
    readonly name: string,
  ) {}

  /** Buys until nothing is left or the drop is stopped, and reports the last answers then. */
  async run(count: number): Promise<void> {
    await Promise.all(Array.from({ length: count }, () => this.#buyer()));
    await this.#buy();
  }

  async #buyer(): Promise<void> {
    const start = performance.now();
    for (let asked = 0; !this.#isOver; ) {
      const due = ((performance.now() - start) / 1_000) * PER_SECOND;
      // A tab in the background wakes up once a second, and asks for all that is due then.
      if (asked > due) await new Promise((resolve) => setTimeout(resolve, 1_000 / PER_SECOND));
      else if (await this.#buy()) asked += 1;
      else this.#isOver = true;
    }
  }

  async #buy(): Promise<boolean> {
    const sent = performance.now();
    const { drop, id, name, answered, longestMs } = this;
    const isBought = await shop.call.buy(drop, { id, name, answered, longestMs });
    this.longestMs = Math.max(this.longestMs, performance.now() - sent);
    if (isBought) this.answered += 1;
    return isBought;
  }
}
