/** What a file is as a whole: its name, its size, and what its bytes are. */

import type { Keyspace } from "./descriptors.js";
import { element } from "./dom.js";
import { type Scan, totalsOf } from "./scan.js";
import { CATEGORIES, CATEGORY_NAMES, counted, number, share, size } from "./words.js";

export class SummaryView {
  readonly #name = element("h3");
  readonly #facts = element("p", { class: "facts" });
  readonly #share = element("div", { class: "share", "aria-hidden": "true" });
  readonly #legend = element("ul", {
    class: "legend",
    "aria-label": "What the bytes of the file are",
  });
  readonly elements = [this.#name, this.#facts, this.#share, this.#legend];

  /** What was read so far. Returns whether it is of another file than what was shown. */
  showPartly({ source }: Scan, done: number): boolean {
    const isOther = this.#name.textContent !== source.name;
    if (isOther) {
      this.#share.replaceChildren();
      this.#legend.replaceChildren();
      this.#name.textContent = source.name;
    }
    this.#facts.textContent = `${size(source.size)}, ${share(done * source.size, source.size)} of it read. Which records are live is known at the end.`;
    return isOther;
  }

  /** Returns what is wrong with the file, in sentences. */
  show(found: Scan, keyspaces: Iterable<Keyspace>): string[] {
    const { source, slots, superblock, superblocks, segmentBytes, lastFrame, flushed } = found;
    const totals = totalsOf(found);
    this.#name.textContent = source.name;
    const names = [...keyspaces].filter(({ what }) => what === "collection");
    const collections = names.map(({ name }) => name).join(", ");
    const facts = [
      size(source.size),
      `${counted(slots.length, "segment")} of ${size(segmentBytes)}`,
      `last frame ${number(lastFrame)}`,
      `${counted(found.liveRecords, "live record")}${collections === "" ? "" : `, in collections: ${collections}`}`,
      superblock === undefined
        ? ""
        : superblock.clean
          ? "closed properly"
          : "not closed, or still open",
      superblock?.keepsHistory ? "keeps its history" : "",
    ];
    this.#facts.textContent = `${facts.filter((one) => one !== "").join(" · ")}.`;
    const shownOf = CATEGORIES.filter((one) => totals[one] > 0 || one === "live" || one === "dead");
    this.#share.replaceChildren(
      ...shownOf.map((one) => {
        const part = element("i", { class: one });
        part.style.width = `${(100 * totals[one]) / source.size}%`;
        part.style.flexShrink = "1";
        return part;
      }),
    );
    this.#legend.replaceChildren(
      ...shownOf.map((one) =>
        element(
          "li",
          { "data-category": one, "data-bytes": totals[one] },
          element("i", { class: `swatch ${one}` }),
          `${CATEGORY_NAMES[one]} `,
          element("b", {}, size(totals[one])),
          ` (${share(totals[one], source.size)})`,
        ),
      ),
    );
    const problems: string[] = [];
    if (superblock === undefined) {
      problems.push("Both superblocks are damaged. What the segments hold is shown all the same.");
    } else if (superblocks.includes("damaged")) {
      problems.push("One of the two superblocks is damaged; the other one is used.");
    }
    if (totals.damaged > 0) {
      problems.push(`${size(totals.damaged)} are damaged: their checksums are wrong.`);
    }
    const missing = flushed - 1 - lastFrame;
    if (missing > 0)
      problems.push(`${counted(missing, "frame")} at the end of the log are missing.`);
    return problems;
  }
}
