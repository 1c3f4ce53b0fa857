/** A worker that is ended while it writes. */

import type { Durability, Recovery } from "varve";
import { messageOf } from "../../race/messages.js";
import { deferred } from "../deferred.js";
import { CheckList, counted, element, figure, milliseconds, say } from "../elements.js";
import type { Found, Order, Report } from "./plug-writer.js";

const CLAIMS = [
  "Every acknowledged commit is there",
  "Each byte is that of exactly these commits: none is there in part",
  "The file is intact: verify() read all of it",
];

/** Held by the worker that has the database, as plug-writer.ts names it. */
const LOCK = "varve plug";

/** How long a worker writes, when it is ended at random. */
const RANDOM_MS = 300;

export function recoveryInWords({ wasClean, tornBytes, droppedFrames }: Recovery): string {
  if (wasClean) return "closed properly";
  if (tornBytes === 0) return "nothing torn";
  const dropped = droppedFrames === 0 ? "" : ` and ${counted(droppedFrames, "frame")}`;
  return `${counted(tornBytes, "torn byte")}${dropped} dropped`;
}

class Writer {
  readonly #worker = new Worker(new URL("./plug-writer.js", import.meta.url), { type: "module" });
  /** The last commit that was acknowledged. What was there when it began counts. */
  acknowledged = 0;
  readonly found: Promise<Found>;
  /** Resolves with the first acknowledgement. */
  readonly begun: Promise<void>;

  constructor(order: Order, onAcknowledged: () => void) {
    const found = deferred<Found>();
    const begun = deferred<void>();
    this.found = found.promise;
    this.begun = begun.promise;
    // Both fail together, and only one of them is waited for.
    this.found.catch(() => {});
    this.begun.catch(() => {});
    const fail = (reason: string) => {
      found.reject(new Error(reason));
      begun.reject(new Error(reason));
    };
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = ({ data }: MessageEvent<Report>) => {
      if (data.kind === "failed") fail(data.reason);
      else if (data.kind === "found") found.resolve(data.found);
      else {
        this.acknowledged = data.commits;
        onAcknowledged();
        if (data.kind === "acknowledged") begun.resolve();
      }
    };
    this.#worker.onerror = ({ message }) => fail(message || "the worker's script did not load");
    this.#worker.postMessage(order, [port2]);
  }

  end(): void {
    this.#worker.terminate();
  }
}

export class WorkerPanel {
  readonly #pull = element("plug-pull", HTMLButtonElement);
  readonly #ten = element("plug-ten", HTMLButtonElement);
  readonly #durability = element("plug-durability", HTMLSelectElement);
  readonly #status = element("plug-status", HTMLParagraphElement);
  readonly #checks = new CheckList(element("plug-checks", HTMLUListElement), CLAIMS);
  #writer: Writer | undefined;
  #isBusy = false;
  #isDrawing = false;
  #rounds = { all: 0, exact: 0 };

  constructor() {
    this.#pull.addEventListener("click", () => this.#attempt(() => this.#startOrPull()));
    this.#ten.addEventListener("click", () => this.#attempt(() => this.#tenTimes()));
  }

  /** One thing at a time. The buttons stay focusable meanwhile. */
  async #attempt(work: () => Promise<void>): Promise<void> {
    if (this.#isBusy) return;
    this.#setBusy(true);
    try {
      await work();
    } catch (error) {
      this.#writer?.end();
      this.#writer = undefined;
      say(this.#status, `That failed: ${messageOf(error)}`);
    } finally {
      this.#setBusy(false);
    }
  }

  #setBusy(isBusy: boolean): void {
    this.#isBusy = isBusy;
    const isWriting = this.#writer !== undefined;
    this.#pull.setAttribute("aria-disabled", String(isBusy));
    this.#ten.setAttribute("aria-disabled", String(isBusy || isWriting));
    this.#durability.disabled = isBusy || isWriting;
    say(this.#pull, isWriting && !isBusy ? "Pull the plug" : "Start writing");
  }

  async #startOrPull(): Promise<void> {
    if (this.#writer === undefined) {
      await this.#start();
      say(this.#status, "It writes. Pull the plug when you like.");
    } else {
      await this.#end();
      say(this.#status, "The worker was ended; what it left was opened and compared.");
    }
  }

  async #tenTimes(): Promise<void> {
    if (this.#writer !== undefined) return;
    for (let round = 1; round <= 10; round++) {
      say(this.#status, `Round ${round} of 10.`);
      await this.#start();
      await new Promise((resolve) => setTimeout(resolve, Math.random() * RANDOM_MS));
      await this.#end();
    }
    say(this.#status, "Ten workers were ended; what each left was opened and compared.");
  }

  async #start(): Promise<void> {
    this.#checks.reset();
    if (this.#rounds.all === 0) say(this.#status, "It opens the file.");
    const durability = this.#durability.value as Durability;
    const writer = new Writer({ do: "write", durability }, () => this.#draw());
    this.#writer = writer;
    await writer.begun;
  }

  async #end(): Promise<void> {
    const writer = this.#writer;
    if (writer === undefined) return;
    const start = performance.now();
    writer.end();
    await navigator.locks.request(LOCK, () => {});
    const endedMs = performance.now() - start;
    const reader = new Writer({ do: "check" }, () => {});
    const found = await reader.found.finally(() => reader.end());
    this.#writer = undefined;
    // It went on until the browser had ended it, and so did its acknowledgements.
    this.#show(found, writer.acknowledged, endedMs);
  }

  #show(found: Found, acknowledged: number, endedMs: number): void {
    const { commits, difference, recovery, verification, openedMs } = found;
    const isThere = commits >= acknowledged;
    const { ok, bytes, frames, problems } = verification;
    this.#checks.set(
      0,
      isThere ? "ok" : "failed",
      `Acknowledged: 1 to ${figure(acknowledged)}. Found: 1 to ${figure(commits)}.`,
    );
    this.#checks.set(
      1,
      difference === undefined ? "ok" : "failed",
      difference ?? "2,048 records were compared.",
    );
    this.#checks.set(
      2,
      ok ? "ok" : "failed",
      ok
        ? `${counted(bytes, "byte")}, ${counted(frames, "frame")}.`
        : counted(problems.length, "problem"),
    );
    say(element("plug-acknowledged", HTMLElement), figure(acknowledged));
    say(element("plug-found", HTMLElement), figure(commits));
    say(element("plug-opened", HTMLElement), milliseconds(openedMs));
    say(element("plug-recovery", HTMLElement), recoveryInWords(recovery));
    this.#rounds.all += 1;
    if (isThere && difference === undefined && ok) this.#rounds.exact += 1;
    const { all, exact } = this.#rounds;
    say(
      element("plug-rounds", HTMLElement),
      `Pulled ${counted(all, "time")}: ${figure(exact)} exact. The browser took ${milliseconds(endedMs)} to end ` +
        "the worker, which went on writing until then; what it acknowledged meanwhile counts.",
    );
  }

  /** Draws once a frame at most. */
  #draw(): void {
    if (this.#isDrawing) return;
    this.#isDrawing = true;
    requestAnimationFrame(() => {
      this.#isDrawing = false;
      const { acknowledged } = this.#writer ?? {};
      if (acknowledged === undefined) return;
      say(element("plug-acknowledged", HTMLElement), figure(acknowledged));
    });
  }
}
