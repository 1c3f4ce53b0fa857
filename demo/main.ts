import type { Report, Request } from "./messages.js";
import type { Grouping } from "./rivals/rival.js";
import type { FailedRow, Row, Verdict } from "./suite.js";

/** The element with this id. The page is part of this program, so a missing element is a bug. */
function element<E extends HTMLElement>(id: string, kind: new () => E): E {
  const found = document.getElementById(id);
  if (!(found instanceof kind)) throw new Error(`the page has no ${kind.name} #${id}`);
  return found;
}

const form = element("controls", HTMLFormElement);
const runButton = element("run", HTMLButtonElement);
const stopButton = element("stop", HTMLButtonElement);
const progress = element("progress", HTMLDivElement);
const bar = element("bar", HTMLProgressElement);
const doing = element("doing", HTMLParagraphElement);
const status = element("status", HTMLParagraphElement);
const errorBox = element("error", HTMLParagraphElement);

const groupings: Grouping[] = ["all", "each"];
const integers = new Intl.NumberFormat("en");

/** At most three digits: the clock is not more precise. */
function digits(value: number): string {
  if (value >= 99.95) return integers.format(Math.round(value));
  return value.toFixed(value >= 10 ? 1 : 2);
}

/** The first time chooses the unit, so that a range has one unit. */
function duration(ms: number, ...others: number[]): string {
  const [unit, scale] =
    ms >= 1000 ? ["s", 1e-3] : ms >= 1 ? ["ms", 1] : ms >= 1e-3 ? ["µs", 1e3] : ["ns", 1e6];
  const figures = [ms, ...others].map((time) => digits(time * scale));
  return `${figures.join("–")}\u00a0${unit}`;
}

function ratio(times: number): string {
  return `${times >= 10 ? integers.format(Math.round(times)) : times.toFixed(1)}\u00a0×`;
}

/** A table cell with a figure and a smaller note below it. */
function cell(tag: "th" | "td", figure: string, note: string): HTMLTableCellElement {
  const made = document.createElement(tag);
  const small = document.createElement("small");
  small.textContent = note;
  made.append(figure, small);
  if (tag === "th") made.scope = "row";
  return made;
}

function bodyOf(grouping: Grouping): HTMLTableSectionElement {
  return element(grouping, HTMLTableElement).tBodies[0]!;
}

function clearTables(note: string): void {
  for (const grouping of groupings) {
    const empty = document.createElement("td");
    empty.colSpan = 3;
    empty.className = "empty";
    empty.textContent = note;
    const row = document.createElement("tr");
    row.append(empty);
    bodyOf(grouping).replaceChildren(row);
  }
}

function append(grouping: Grouping, row: HTMLTableRowElement): void {
  const body = bodyOf(grouping);
  body.querySelector("td.empty")?.parentElement?.remove();
  body.append(row);
}

/** One run of all stores: its worker, and its results so far. */
class Run {
  readonly #worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
  /** varve's median for each grouping: the other rows show their ratio to it. */
  readonly #reference = new Map<Grouping, number>();

  constructor(
    private readonly request: Request,
    private readonly ended: () => void,
  ) {
    this.#worker.onmessage = ({ data }: MessageEvent<Report>) => this.#receive(data);
    this.#worker.onerror = (event) =>
      this.#fail(`The worker could not run: ${event.message || "its script did not load"}.`);
    this.#worker.postMessage(request);
  }

  /** The next run starts from whatever the stores contain now. */
  stop(): void {
    this.#worker.terminate();
    this.ended();
  }

  #receive(report: Report): void {
    switch (report.type) {
      case "progress":
        bar.value = report.done / report.total;
        doing.textContent = report.doing;
        return;
      case "row":
        this.#show(report.row);
        return;
      case "failed":
        this.#showFailure(report.row);
        return;
      case "unavailable":
        this.#fail(report.message);
        return;
      case "done":
        this.#finish(report.verdict);
        return;
    }
  }

  #show({ id, name, grouping, durability, ms, contents }: Row): void {
    const { cycles } = this.request;
    if (id === "varve") this.#reference.set(grouping, ms.median);
    const reference = this.#reference.get(grouping);
    const row = document.createElement("tr");
    row.setAttribute("data-store", id);
    row.setAttribute("data-stock", String(contents.stock));
    row.setAttribute("data-product", contents.name);
    row.append(
      cell("th", name, durability),
      cell("td", duration(ms.median), duration(ms.lowerQuartile, ms.upperQuartile)),
      cell(
        "td",
        reference === undefined ? "–" : ratio(ms.median / reference),
        `${duration(ms.median / cycles)} each`,
      ),
    );
    append(grouping, row);
  }

  #showFailure({ id, name, grouping, error }: FailedRow): void {
    const row = document.createElement("tr");
    row.setAttribute("data-store", id);
    const reason = document.createElement("td");
    reason.colSpan = 2;
    reason.className = "failed";
    reason.textContent = error;
    row.append(cell("th", name, "did not finish"), reason);
    append(grouping, row);
  }

  #finish({ equal, contents }: Verdict): void {
    status.setAttribute("data-verdict", equal ? "equal" : "unequal");
    status.textContent =
      equal && contents !== undefined
        ? `All stores ended with equal contents: ${contents.stock} pair of “${contents.name}”, read after closing and opening again.`
        : "The stores did not all end with the same contents, so these times say nothing.";
    this.#worker.terminate();
    this.ended();
  }

  #fail(message: string): void {
    errorBox.textContent = message;
    errorBox.hidden = false;
    status.textContent = "";
    this.#worker.terminate();
    this.ended();
  }
}

let current: Run | undefined;

function setRunning(running: boolean): void {
  // One button replaces the other; the keyboard focus must follow.
  const held = document.activeElement;
  runButton.hidden = running;
  stopButton.hidden = !running;
  progress.hidden = !running;
  for (const select of form.querySelectorAll("select")) select.disabled = running;
  if (running && held === runButton) stopButton.focus();
  if (!running && held === stopButton) runButton.focus();
}

function start(): void {
  const fields = new FormData(form);
  const cycles = Number(fields.get("cycles"));
  const runs = Number(fields.get("runs"));
  errorBox.hidden = true;
  status.removeAttribute("data-verdict");
  status.textContent = `${integers.format(cycles)} buyers, ${runs} runs for each store and way of committing.`;
  bar.value = 0;
  clearTables("Waiting for its turn.");
  setRunning(true);
  current = new Run({ type: "run", cycles, runs }, () => {
    current = undefined;
    setRunning(false);
    for (const waiting of document.querySelectorAll("td.empty")) {
      waiting.textContent = "Not run.";
    }
  });
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  if (current === undefined) start();
});
stopButton.addEventListener("click", () => {
  status.textContent = "Stopped.";
  current?.stop();
});
clearTables("Not run yet.");
