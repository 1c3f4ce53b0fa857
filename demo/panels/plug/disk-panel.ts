/** A simulated disk that loses power at a moment of your choice. */

import { messageOf } from "../../race/messages.js";
import { type Deferred, deferred } from "../deferred.js";
import { CheckList, counted, element, figure, say } from "../elements.js";
import type { SectorState, Unflushed } from "./disk.js";
import type { Answer, Crash, Question, Recorded, Sweep } from "./plug-disk.js";
import { recoveryInWords } from "./worker-panel.js";

const CLAIMS = [
  "Every commit that was acknowledged as flushed is there",
  "What is there are the first commits, whole: each byte was compared",
  "The file is intact: verify() read all of it",
];

/** As plug-disk.ts makes them. */
const COMMITS = 18;
/** Where the log begins. */
const LOG = 8_192;

const STATES: readonly SectorState[] = ["flushed", "kept", "lost", "empty"];
const STATE_WORDS: Readonly<Record<SectorState, string>> = {
  flushed: "flushed",
  kept: "not flushed but kept",
  lost: "lost",
  empty: "not written yet",
};

class DiskWorker {
  readonly #worker = new Worker(new URL("./plug-disk.js", import.meta.url), { type: "module" });
  readonly #pending = new Map<number, Deferred<unknown>>();
  #asked = 0;

  constructor(onProgress: (done: number) => void) {
    this.#worker.onmessage = ({ data }: MessageEvent<Answer>) => {
      if (data.kind === "progress") return onProgress(data.done);
      const pending = this.#pending.get(data.id);
      this.#pending.delete(data.id);
      if (data.kind === "answer") pending?.resolve(data.answer);
      else pending?.reject(new Error(data.reason));
    };
    this.#worker.onerror = ({ message }) => {
      const error = new Error(message || "the worker's script did not load");
      for (const { reject } of this.#pending.values()) reject(error);
    };
  }

  ask<T>(question: Question): Promise<T> {
    const pending = deferred<unknown>();
    this.#asked += 1;
    this.#pending.set(this.#asked, pending);
    this.#worker.postMessage({ id: this.#asked, question });
    return pending.promise as Promise<T>;
  }
}

export class DiskPanel {
  readonly #slider = element("disk-at", HTMLInputElement);
  readonly #step = element("disk-step", HTMLOutputElement);
  readonly #unflushed = element("disk-unflushed", HTMLFieldSetElement);
  readonly #draw = element("disk-draw", HTMLButtonElement);
  readonly #sweep = element("disk-sweep", HTMLButtonElement);
  readonly #bar = element("disk-bar", HTMLProgressElement);
  readonly #status = element("disk-status", HTMLParagraphElement);
  readonly #picture = element("disk-picture", HTMLDivElement);
  readonly #summary = element("disk-summary", HTMLParagraphElement);
  readonly #checks = new CheckList(element("disk-checks", HTMLUListElement), CLAIMS);
  readonly #worker = new DiskWorker((done) => {
    this.#bar.value = done;
  });
  readonly #sectors: HTMLElement[] = [];
  readonly #commits: { item: HTMLLIElement; text: HTMLSpanElement }[] = [];
  #seed = 1;
  #isOpening = false;
  #isSweeping = false;
  /** Whether the choice changed while a crash was opened. */
  #isStale = false;

  constructor() {
    this.#slider.addEventListener("input", () => this.#attempt(() => this.#open()));
    this.#unflushed.addEventListener("change", () => this.#attempt(() => this.#open()));
    this.#draw.addEventListener("click", () => {
      this.#seed += 1;
      this.#attempt(() => this.#open());
    });
    this.#sweep.addEventListener("click", () => this.#attempt(() => this.#everyCrash()));
    const list = element("disk-commits", HTMLOListElement);
    for (let n = 1; n <= COMMITS; n++) {
      const item = document.createElement("li");
      const number = document.createElement("span");
      number.textContent = String(n);
      const text = document.createElement("span");
      text.className = "unseen";
      item.append(number, text);
      list.append(item);
      this.#commits.push({ item, text });
    }
    this.#attempt(() => this.#record());
  }

  async #attempt(work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      say(this.#status, `That failed: ${messageOf(error)}`);
    }
  }

  async #record(): Promise<void> {
    const { steps, sectors } = await this.#worker.ask<Recorded>({ ask: "record" });
    const last = sectors.at(-1);
    const groups: [string, number[]][] = [
      ["Superblocks", sectors.filter((one) => one < LOG)],
      ["The log", sectors.filter((one) => one >= LOG && one !== last)],
      ["Its end", sectors.filter((one) => one === last)],
    ];
    for (const [name, members] of groups) {
      const group = document.createElement("div");
      const title = document.createElement("span");
      title.textContent = name;
      const cells = document.createElement("div");
      cells.className = "cells";
      for (const _ of members) {
        const cell = document.createElement("i");
        cell.className = "sector";
        cells.append(cell);
        this.#sectors.push(cell);
      }
      group.append(title, cells);
      this.#picture.append(group);
    }
    this.#slider.max = String(steps);
    this.#slider.value = String(Math.round(steps * 0.6));
    this.#slider.disabled = false;
    await this.#open();
  }

  /** Opens what the chosen crash leaves, and again if another one was chosen meanwhile. */
  async #open(): Promise<void> {
    this.#isStale = true;
    if (this.#isOpening) return;
    this.#isOpening = true;
    try {
      while (this.#isStale) {
        this.#isStale = false;
        const chosen = this.#unflushed.querySelector<HTMLInputElement>(":checked");
        const unflushed = (chosen?.value ?? "some") as Unflushed;
        const at = Number(this.#slider.value);
        const seed = this.#seed;
        this.#show(await this.#worker.ask<Crash>({ ask: "crash", at, unflushed, seed }));
        this.#picture.setAttribute("data-shown", `${at} ${unflushed} ${seed}`);
      }
    } finally {
      this.#isOpening = false;
    }
  }

  #show({ at, acknowledged, flushed, states, found, recovery, problems, failure }: Crash): void {
    const steps = this.#slider.max;
    say(this.#step, `${at} of ${steps} sector writes and flushes`);
    for (const [index, state] of states.entries()) {
      this.#sectors[index]?.setAttribute("data-state", state);
    }
    const counts = STATES.map((state) => {
      const count = states.filter((one) => one === state).length;
      return `${count} ${STATE_WORDS[state]}`;
    });
    const { length } = states;
    this.#picture.setAttribute("aria-label", `Of ${length} sectors: ${counts.join(", ")}.`);
    for (const [index, { item, text }] of this.#commits.entries()) {
      const promised =
        index < flushed ? "flushed" : index < acknowledged ? "written" : "not acknowledged";
      const isThere = index < found;
      item.setAttribute("data-promised", promised);
      item.setAttribute("data-there", String(isThere));
      const acknowledgement =
        promised === "not acknowledged" ? promised : `acknowledged as ${promised}`;
      say(text, `: ${acknowledgement}, ${isThere ? "there" : "not there"}`);
    }
    const range = (count: number) => (count === 0 ? "none" : count === 1 ? "1" : `1 to ${count}`);
    const repaired = recovery === undefined ? "" : ` Recovery: ${recoveryInWords(recovery)}.`;
    const sentence =
      `Acknowledged as flushed: ${range(flushed)}. Acknowledged: ${range(acknowledged)}. ` +
      `There after opening again: ${range(found)}.`;
    say(this.#summary, sentence + repaired);
    this.#slider.setAttribute("aria-valuetext", `step ${at} of ${steps}. ${sentence}`);
    const isOpen = recovery !== undefined;
    this.#checks.set(
      0,
      isOpen && found >= flushed ? "ok" : "failed",
      isOpen ? `Flushed: ${range(flushed)}. There: ${range(found)}.` : (failure ?? ""),
    );
    this.#checks.set(
      1,
      failure === undefined && found <= acknowledged + 1 ? "ok" : "failed",
      failure ?? `${range(found)}, and nothing of a later one.`,
    );
    this.#checks.set(
      2,
      isOpen && problems === 0 ? "ok" : "failed",
      isOpen ? `${counted(problems, "problem")}.` : "",
    );
  }

  async #everyCrash(): Promise<void> {
    if (this.#isSweeping) return;
    this.#isSweeping = true;
    this.#sweep.setAttribute("aria-disabled", "true");
    say(this.#status, "Every crash is tried.");
    try {
      this.#seed += 1;
      const question: Question = { ask: "every crash", seed: this.#seed };
      const { disks, failures } = await this.#worker.ask<Sweep>(question);
      const [first] = failures;
      say(
        this.#status,
        first === undefined
          ? `${figure(disks)} disks were opened: each had all flushed commits, and no commit in part.`
          : `${figure(failures.length)} of ${figure(disks)} disks failed. The first: ${first}.`,
      );
    } finally {
      this.#isSweeping = false;
      this.#sweep.setAttribute("aria-disabled", "false");
    }
  }
}
