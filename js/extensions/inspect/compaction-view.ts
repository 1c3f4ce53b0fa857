/** A compaction of the copy that is shown, step by step. */

import { setTimeout } from "../../util/clock.js";
import { element } from "./dom.js";
import { size } from "./words.js";
import { compacted } from "./workbench.js";

type Bytes = Uint8Array<ArrayBuffer>;

/** How long a step is shown before the next one. */
const STEP_MS = 900;

/** A slider over the steps of a compaction. */
export class CompactionView {
  readonly element = element("div", { class: "steps", hidden: true });
  readonly #slider = element("input", {
    type: "range",
    min: 0,
    "aria-label": "Steps of the compaction",
  });
  readonly #label = element("span", { class: "facts" });
  readonly #show: (file: Bytes) => Promise<void>;
  /** The file before, and after each step. */
  #files: Bytes[] = [];

  /** `show` shows the file after a step that is chosen; `run` calls it unless something else is under way. */
  constructor(show: (file: Bytes) => Promise<void>, run: (act: () => Promise<void>) => void) {
    this.#show = show;
    this.element.append(this.#slider, this.#label);
    this.#slider.addEventListener("input", () => {
      run(() => this.#showStep(Number(this.#slider.value)));
    });
  }

  /** Whether the file that is shown is one of a compaction's steps. */
  get hasSteps(): boolean {
    return this.#files.length > 0;
  }

  /** Forgets the steps, since another file is shown. */
  clear(): void {
    this.#files = [];
    this.element.hidden = true;
  }

  /** Compacts these bytes and shows each step for a moment, or only the last one where motion is unwanted. */
  async run(before: Bytes): Promise<void> {
    this.#files = [before, ...(await compacted(before))];
    const isStill = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const last = this.#files.length - 1;
    for (let step = isStill ? last : 0; step <= last; step += 1) {
      await this.#showStep(step);
      if (step < last) await new Promise((resolve) => setTimeout(resolve, STEP_MS));
    }
  }

  async #showStep(step: number): Promise<void> {
    const file = this.#files[step];
    if (file === undefined) return;
    await this.#show(file);
    const last = this.#files.length - 1;
    this.element.hidden = last < 1;
    const title = step === 0 ? "Before" : step === last ? "After" : `Step ${step} of ${last}`;
    const text = `${title}: the file has ${size(file.length)}`;
    this.#slider.max = String(last);
    this.#slider.value = String(step);
    this.#slider.setAttribute("aria-valuetext", text);
    this.#label.textContent = text;
  }
}
