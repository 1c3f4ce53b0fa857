import { showPanels } from "./panels/panels.js";
import { disturbances, type FileTimes, missingSupport, thisMachine } from "./race/environment.js";
import { messageOf } from "./race/messages.js";
import {
  type Length,
  STORE_IDS,
  STORES,
  type StoreId,
  WORKLOADS,
  type WorkloadId,
  workloadInfo,
} from "./race/plan.js";
import { type Progress, Race } from "./race/race.js";
import type { Outcome, Results } from "./race/results.js";
import {
  expand,
  fromHash,
  machineInWords,
  toHash,
  toJson,
  toMarkdown,
  UnreadableError,
} from "./race/share.js";
import { StoreWorker } from "./race/store-worker.js";
import { summaryOf } from "./race/summary.js";
import { View } from "./race/view.js";
import { day, left } from "./race/words.js";

/** The element with this id. The page is part of this program, so a missing element is a bug. */
function element<E extends HTMLElement>(id: string, kind: new () => E): E {
  const found = document.getElementById(id);
  if (!(found instanceof kind)) throw new Error(`the page has no ${kind.name} #${id}`);
  return found;
}

const form = element("controls", HTMLFormElement);
const quickButton = element("quick", HTMLButtonElement);
const fullButton = element("full", HTMLButtonElement);
const pauseButton = element("pause", HTMLButtonElement);
const stopButton = element("stop", HTMLButtonElement);
const bar = element("bar", HTMLProgressElement);
const doing = element("doing", HTMLSpanElement);
const leftText = element("left", HTMLSpanElement);
const status = element("status", HTMLParagraphElement);
const errorBox = element("error", HTMLParagraphElement);
const noteList = element("notes", HTMLUListElement);
const source = element("source", HTMLParagraphElement);
const summary = element("summary", HTMLParagraphElement);
const compare = element("compare", HTMLSelectElement);
const copyButtons = ["markdown", "json", "link"].map((what) =>
  element(`copy-${what}`, HTMLButtonElement),
);
const view = new View(element("groups", HTMLDivElement));

/** A checkbox for each store and workload. */
function fillChoices(): void {
  const add = (list: HTMLFieldSetElement, name: string, value: string, text: string) => {
    const label = document.createElement("label");
    const box = document.createElement("input");
    Object.assign(box, { type: "checkbox", name, value, checked: true });
    label.append(box, text);
    list.append(label);
  };
  const storeList = element("stores", HTMLFieldSetElement);
  for (const { id, name } of STORES) add(storeList, "store", id, name);
  const workloadList = element("workloads", HTMLFieldSetElement);
  for (const { id, group, title } of WORKLOADS) {
    add(workloadList, "workload", id, `${group}: ${title}`);
  }
  const settings = document.getElementById("settings");
  for (const { name, settings: text, durability } of STORES) {
    const term = document.createElement("dt");
    term.textContent = name;
    const description = document.createElement("dd");
    const sentence = text.charAt(0).toUpperCase() + text.slice(1);
    description.textContent = `${sentence}. An acknowledged write ${durability}.`;
    settings?.append(term, description);
  }
}

const QUICK = WORKLOADS.filter(({ quick }) => quick).map(({ id }) => id);

function workloadsOf({ rows }: Results): WorkloadId[] {
  return WORKLOADS.map(({ id }) => id).filter((id) => rows[id] !== undefined);
}

/** What the tables show. */
let shown: Results | undefined;

function show(
  results: Results,
  from: string,
  workloads: readonly WorkloadId[] = workloadsOf(results),
): void {
  shown = results;
  view.show(results.rows, workloads);
  source.textContent = `${from}: ${machineInWords(results.machine)}, ${day(results.at)}.`;
  summary.textContent = summaryOf(results) ?? "";
  for (const button of copyButtons) button.disabled = false;
  showNotes(results.notes);
}

function showNotes(notes: readonly string[]): void {
  noteList.hidden = notes.length === 0;
  noteList.replaceChildren(
    ...notes.map((note) => {
      const item = document.createElement("li");
      item.textContent = note;
      return item;
    }),
  );
}

function fail(message: string): void {
  errorBox.textContent = message;
  errorBox.hidden = false;
}

/** Times of a background tab. */
const HIDDEN = "The tab was in the background for a while. The race was paused meanwhile.";

/** A race from its start to its end, on the page. */
class Running {
  readonly #race: Race;
  readonly #results: Results;
  #pausedByHand = false;
  #progress: Progress = { doing: "", done: 0, leftMs: 0 };

  constructor(
    length: Length,
    stores: readonly StoreId[],
    readonly workloads: readonly WorkloadId[],
    notes: string[],
  ) {
    this.#results = {
      at: new Date().toISOString().slice(0, 16),
      length,
      machine: thisMachine(),
      notes,
      rows: {},
    };
    this.#race = new Race(
      { length, stores, workloads },
      {
        progress: (progress) => {
          this.#progress = progress;
          this.#showProgress();
        },
        outcome: (workload, store, outcome) => this.#add(workload, store, outcome),
      },
    );
    if (document.hidden) this.onVisibility();
  }

  #add(workload: WorkloadId, store: StoreId, outcome: Outcome): void {
    const row = { ...this.#results.rows[workload], [store]: outcome };
    this.#results.rows[workload] = row;
    view.showOne(workload, row);
  }

  #showProgress(): void {
    const { doing: text, done, leftMs } = this.#progress;
    bar.value = done;
    doing.textContent = text;
    leftText.textContent = left(leftMs);
  }

  async run(): Promise<void> {
    show(this.#results, "This browser, now", this.workloads);
    const start = performance.now();
    const ended = await this.#race.run();
    const seconds = Math.round((performance.now() - start) / 1_000);
    bar.value = ended ? 1 : bar.value;
    leftText.textContent = "";
    doing.textContent = ended ? `Done in ${seconds} seconds.` : "Stopped.";
    status.textContent = this.#verdict(ended);
    summary.textContent = summaryOf(this.#results) ?? "";
  }

  #verdict(ended: boolean): string {
    const outcomes = Object.values(this.#results.rows).flatMap((row) => Object.values(row));
    const count = (kind: Outcome["kind"]) => outcomes.filter((one) => one.kind === kind).length;
    const [measured, wrong, failed] = [count("measured"), count("void"), count("failed")];
    status.setAttribute(
      "data-verdict",
      !ended ? "stopped" : wrong + failed > 0 ? "unequal" : "equal",
    );
    const begin = ended ? "" : "Stopped. What was measured stays. ";
    if (wrong + failed === 0) {
      return `${begin}${measured} times measured; after each workload the contents of all stores were equal.`;
    }
    return `${begin}${measured} times measured. ${wrong} are void, because contents were wrong, and ${failed} failed: their rows say why.`;
  }

  cleanUp(): Promise<void> {
    return this.#race.cleanUp();
  }

  stop(): void {
    this.#race.stop();
  }

  togglePause(): void {
    this.#pausedByHand = !this.#pausedByHand;
    if (this.#pausedByHand) this.#race.pause();
    else if (!document.hidden) this.#race.resume();
    pauseButton.textContent = this.#pausedByHand ? "Go on" : "Pause";
    status.textContent = this.#pausedByHand ? "Paused." : "";
  }

  /** Browsers slow down a tab in the background. */
  onVisibility(): void {
    if (document.hidden) {
      this.#race.pause();
      const { notes } = this.#results;
      if (!notes.includes(HIDDEN)) notes.push(HIDDEN);
      showNotes(notes);
      status.textContent = "Paused while this tab is in the background.";
    } else if (!this.#pausedByHand) {
      this.#race.resume();
      status.textContent = "";
    }
  }
}

let running: Running | undefined;
/** The removal of what an earlier race has stored. */
let cleaning: Promise<void> = Promise.resolve();

function setRunning(isRunning: boolean, length: Length): void {
  // Some buttons replace others; the keyboard focus must follow.
  const held = document.activeElement;
  const heldAny = [quickButton, fullButton, pauseButton, stopButton].some((one) => one === held);
  for (const button of [quickButton, fullButton]) button.hidden = isRunning;
  for (const button of [pauseButton, stopButton]) button.hidden = !isRunning;
  pauseButton.textContent = "Pause";
  for (const box of form.querySelectorAll("input")) box.disabled = isRunning;
  document.body.toggleAttribute("data-running", isRunning);
  if (!heldAny) return;
  if (isRunning) stopButton.focus();
  else (length === "quick" ? quickButton : fullButton).focus();
}

function chosen<T extends string>(name: string, all: readonly T[]): T[] {
  const values = new FormData(form).getAll(name);
  return all.filter((one) => values.includes(one));
}

async function start(length: Length): Promise<void> {
  errorBox.hidden = true;
  status.removeAttribute("data-verdict");
  const stores = chosen("store", STORE_IDS);
  const workloads = chosen(
    "workload",
    WORKLOADS.map(({ id }) => id),
  ).filter((id) => length === "full" || workloadInfo(id).quick);
  if (stores.length === 0 || workloads.length === 0) {
    fail("Choose at least one store and one workload of this length.");
    return;
  }
  setRunning(true, length);
  status.textContent = `${length === "quick" ? "A quick look" : "A full race"} has begun: ${stores.length} stores, ${workloads.length} workloads.`;
  doing.textContent = "Starting";
  bar.value = 0;
  try {
    const missing = await missingSupport();
    if (missing !== undefined) {
      fail(missing);
      status.textContent = "";
      doing.textContent = "Nothing has run.";
      return;
    }
    await cleaning;
    const prober = new StoreWorker();
    const times = await prober.call<FileTimes>({ do: "probe" }).finally(() => prober.end());
    const notes = disturbances(times, thisMachine().clock);
    running = new Running(length, stores, workloads, notes);
    await running.run();
    cleaning = running.cleanUp();
  } catch (error) {
    fail(`The race broke off. ${messageOf(error)}`);
    doing.textContent = "Broken off.";
    leftText.textContent = "";
  } finally {
    running = undefined;
    setRunning(false, length);
  }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const isFull = event.submitter === fullButton;
  if (running === undefined) void start(isFull ? "full" : "quick");
});
pauseButton.addEventListener("click", () => running?.togglePause());
stopButton.addEventListener("click", () => running?.stop());
document.addEventListener("visibilitychange", () => running?.onVisibility());

/** Copies a text, and says so on the button for a moment. */
async function copy(button: HTMLButtonElement, text: () => Promise<string> | string) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(await text());
    button.textContent = "Copied";
  } catch (error) {
    fail(`It could not be copied: ${messageOf(error)}.`);
  }
  setTimeout(() => {
    button.textContent = before;
  }, 1_500);
}

const [markdownButton, jsonButton, linkButton] = copyButtons;
markdownButton?.addEventListener("click", () => copy(markdownButton, () => toMarkdown(shown!)));
jsonButton?.addEventListener("click", () => copy(jsonButton, () => toJson(shown!)));
linkButton?.addEventListener("click", () =>
  copy(linkButton, async () => {
    const { origin, pathname } = location;
    return `${origin}${pathname}${await toHash(shown!)}`;
  }),
);

/** Results of other machines, kept in the repository. */
let records: Results[] = [];

compare.addEventListener("change", () => {
  view.compare(records[Number(compare.value)]?.rows ?? {});
  if (compare.value === "") view.compare({});
});

async function loadRecords(): Promise<void> {
  const response = await fetch(new URL("./records.json", import.meta.url));
  const listed: unknown = await response.json();
  records = Array.isArray(listed) ? listed.map(expand) : [];
  for (const [index, { machine, at, length }] of records.entries()) {
    const name = `${machineInWords(machine)}, ${day(at)}, ${length}`;
    compare.add(new Option(name, String(index)));
  }
}

/** The results that the page's address holds. */
async function linkedResults(): Promise<Results | undefined> {
  try {
    return await fromHash(location.hash);
  } catch (error) {
    if (!(error instanceof UnreadableError)) throw error;
    fail(
      `The results in this link cannot be read: ${error.message}. Copy the whole link again, from the page that made it.`,
    );
    return undefined;
  }
}

async function begin(): Promise<void> {
  await loadRecords();
  const linked = await linkedResults();
  const [newest] = records;
  if (running !== undefined) return;
  if (linked !== undefined) show(linked, "From the link");
  else if (newest !== undefined) show(newest, "Recorded, not here");
  else view.show({}, QUICK);
}

showPanels();
fillChoices();
// Until it is known what is shown, so that no table moves.
view.show({}, []);
begin().catch((error: unknown) => fail(`The results could not be shown: ${messageOf(error)}.`));
addEventListener("hashchange", async () => {
  const linked = await linkedResults();
  if (linked !== undefined && running === undefined) show(linked, "From the link");
});
