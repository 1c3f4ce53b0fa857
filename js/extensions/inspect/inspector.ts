/** The element that shows a file: its segments, their frames, their records and their bytes. */

import { type Database, databases, opfs } from "../../index.js";
import { monotonicNow, setTimeout } from "../../util/clock.js";
import { groupsOf, hexOf } from "./changed-bytes.js";
import { CompactionView } from "./compaction-view.js";
import { type Keyspace, keyspacesOf } from "./descriptors.js";
import { button, element, PAGE, pager, row, scrolled, table } from "./dom.js";
import { type Field, keyText, type Range } from "./fields.js";
import { KIND, type LogBytes, SYSTEM } from "./format.js";
import { HistoryView } from "./history-view.js";
import { type Fills, fillsOf, ItemMap } from "./map.js";
import { type Frame, FramesModel, frameName, frameText, SlotsModel, slotText } from "./models.js";
import { recordView } from "./record-view.js";
import { type ShownRecord, shownFrames, shownRecords } from "./records.js";
import { bytesIn, readLog, type Scan, type Slot, scan } from "./scan.js";
import {
  bytesOf,
  bytesSource,
  type GivenSource,
  MAX_LOADED,
  type Source,
  sourceOf,
} from "./source.js";
import { STYLES } from "./styles.js";
import { SummaryView } from "./summary-view.js";
import { systemKeyText } from "./system-keys.js";
import { TablesView } from "./tables-view.js";
import { CATEGORIES, type Category, counted, kindName, number, slotName } from "./words.js";
import { differences, type Edited, edited, filled, messageOf } from "./workbench.js";

type Bytes = Uint8Array<ArrayBuffer>;

/** What is shown, and what may be chosen. */
export interface InspectOptions extends GivenSource {
  /**
   * Fills an empty database in memory with an example, which a button shows. Without it there is no such button. It is
   * shown first if nothing else is.
   */
  readonly example?: (db: Database) => void | Promise<void>;
}

/** An `HTMLElement`, in programs whose types have none as well. */
export interface MountPoint {
  /** Adds the inspector. */
  append(child: never): void;
}

/** A mounted inspector. */
export interface Inspector {
  /** Shows something else. Resolves when all of it was read, or was found to be unreadable. */
  open(source: GivenSource): Promise<void>;
  /** A copy of the bytes that are shown, with what was changed here; `undefined` while nothing is shown. */
  bytes(): Promise<Bytes | undefined>;
  /** Ends what is being read, and removes the inspector from its element. */
  close(): void;
}

export class InspectorView implements Inspector {
  readonly #root: ShadowRoot;
  readonly #container = document.createElement("div");
  readonly #options: InspectOptions;
  readonly #status = element("p", { class: "status", role: "status" });
  readonly #error = element("p", { class: "error", role: "alert", hidden: true });
  readonly #progress = element("progress", {
    max: 1,
    value: 0,
    "aria-label": "Reading the file",
    hidden: true,
  });
  readonly #shown = element("div", { class: "shown", hidden: true });
  readonly #summary = new SummaryView();
  readonly #compaction = new CompactionView(
    (file) => this.#show(bytesSource(this.#source?.name ?? "", file)),
    (act) => {
      if (!this.#isBusy) void this.#do(act);
    },
  );
  readonly #slotCaption = element("p", { class: "caption" });
  readonly #framesTitle = element("h4", {}, "Frames");
  readonly #frameCaption = element("p", { class: "caption" });
  readonly #records = element("div", { class: "part", "data-part": "records" });
  readonly #record = element("div", { class: "part", "data-part": "record" });
  readonly #changes = element("div", { class: "changes", role: "status", hidden: true });
  readonly #history = new HistoryView(
    (version) => this.#do(() => this.#goToVersion(version)),
    (act) => this.#do(act),
  );
  readonly #tables = new TablesView(
    () => ({ slots: this.#scan?.slots ?? [], slot: this.#slot, frames: this.#frames }),
    {
      slot: (index, then) => this.#do(() => this.#openSlot(index).then(then)),
      frame: (index) => this.#showFrame(index),
    },
  );
  readonly #databases = element("select", { "aria-label": "Databases of this site" });
  readonly #probes: Record<string, HTMLElement> = {};
  readonly #slotMap: ItemMap;
  readonly #frameMap: ItemMap;
  readonly #compact = button("Compact it", () => this.#do(() => this.#runCompaction()));
  readonly #save = button("Save a copy", () => this.#do(() => this.#saveCopy()));

  /** Ends with the inspector. */
  readonly #life = new AbortController();
  /** Ends with what is being read. */
  #work = new AbortController();
  #source: Source | undefined;
  #scan: Scan | undefined;
  #keyspaces = new Map<number, Keyspace>();
  #slot: Slot | undefined;
  #log: LogBytes | undefined;
  #frames: Frame[] = [];
  #shownRecords: ShownRecord[] = [];
  #isBusy = false;

  constructor(host: MountPoint, options: InspectOptions) {
    this.#options = options;
    (host as HTMLElement).append(this.#container);
    this.#root = this.#container.attachShadow({ mode: "open" });
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(STYLES);
    this.#root.adoptedStyleSheets = [sheet];
    this.#slotMap = new ItemMap("Segments of the file", (context) => this.#fills(context), {
      onMove: (index) => this.#do(() => this.#openSlot(index)),
      onOpen: () => this.#frameMap.element.focus(),
      onClose: () => {},
    });
    this.#frameMap = new ItemMap("Frames of the segment", (context) => this.#fills(context), {
      onMove: (index) => this.#showFrame(index),
      onOpen: () =>
        this.#root.querySelector<HTMLElement>("[data-part=records] tbody button")?.focus(),
      onClose: () => this.#slotMap.element.focus(),
    });
    this.#build();
    this.#listen();
    this.#listDatabases();
  }

  /** Shows the first thing: what the options give, or the example. */
  async openFirst(): Promise<void> {
    const { bytes, file, database, example } = this.#options;
    if (bytes !== undefined || file !== undefined || database !== undefined) {
      await this.open(this.#options);
    } else if (example !== undefined) {
      await this.#do(() => this.#showExample(example));
    }
  }

  async open(given: GivenSource): Promise<void> {
    await this.#do(async () => {
      const source = await sourceOf(given);
      this.#compaction.clear();
      this.#changes.hidden = true;
      await this.#show(source);
    });
  }

  async bytes(): Promise<Bytes | undefined> {
    return this.#source === undefined ? undefined : bytesOf(this.#source);
  }

  close(): void {
    this.#life.abort();
    this.#work.abort();
    this.#container.remove();
  }

  #build(): void {
    const file = element("input", {
      type: "file",
      accept: ".varve",
      "aria-label": "Choose a .varve file",
    });
    file.addEventListener("change", () => {
      const [chosen] = file.files ?? [];
      if (chosen !== undefined) void this.open({ file: chosen });
      file.value = "";
    });
    const { example } = this.#options;
    const sources = element(
      "div",
      { class: "sources" },
      ...(example === undefined
        ? []
        : [button("Show the example", () => this.#do(() => this.#showExample(example)))]),
      element("span", { class: "file" }, "Choose a .varve file", file),
      this.#databases,
      element(
        "span",
        { class: "drop" },
        "or drop a file here. It stays on this device, unchanged.",
      ),
    );
    const probes = element("div", { hidden: true });
    for (const name of [...CATEGORIES, "ink", "paper", "line"]) {
      const probe = element("i");
      probe.style.color = `var(--${name})`;
      this.#probes[name] = probe;
      probes.append(probe);
    }
    const left = element(
      "div",
      {},
      element(
        "div",
        { class: "part" },
        element("h4", {}, "Segments"),
        this.#slotMap.element,
        this.#slotCaption,
      ),
      element(
        "div",
        { class: "part" },
        this.#framesTitle,
        this.#frameMap.element,
        this.#frameCaption,
      ),
    );
    const right = element("div", {}, this.#records, this.#record);
    this.#shown.append(
      ...this.#summary.elements,
      element("div", { class: "actions" }, this.#compact, this.#save, this.#compaction.element),
      this.#changes,
      element("div", { class: "body" }, left, right),
      this.#history.element,
      this.#tables.element,
    );
    this.#root.append(probes, sources, this.#progress, this.#status, this.#error, this.#shown);
  }

  #listen(): void {
    const host = this.#container;
    const drag = (event: DragEvent) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      host.toggleAttribute("data-dragging", true);
    };
    host.addEventListener("dragenter", drag);
    host.addEventListener("dragover", drag);
    host.addEventListener("dragleave", () => host.removeAttribute("data-dragging"));
    host.addEventListener("drop", (event) => {
      host.removeAttribute("data-dragging");
      const [dropped] = event.dataTransfer?.files ?? [];
      if (dropped === undefined) return;
      event.preventDefault();
      void this.open({ file: dropped });
    });
    this.#databases.addEventListener("change", () => {
      const { value } = this.#databases;
      if (value !== "") void this.open({ database: value });
    });
    this.#databases.addEventListener("focus", () => this.#listDatabases());
    const { signal } = this.#life;
    matchMedia("(prefers-color-scheme: dark)").addEventListener(
      "change",
      () => {
        this.#slotMap.redraw();
        this.#frameMap.redraw();
      },
      { signal },
    );
    this.#records.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.#frameMap.element.focus();
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (step === undefined) return;
      const buttons = [...this.#records.querySelectorAll<HTMLElement>("tbody button")];
      const focused = this.#root.activeElement;
      const at = buttons.indexOf(focused as HTMLElement);
      if (at < 0) return;
      event.preventDefault();
      buttons[at + step]?.focus();
    });
    this.#record.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      this.#records.querySelector<HTMLElement>("[data-selected] button")?.focus();
    });
  }

  /** The databases of the origin, where there are any; a page without storage has no list. */
  #listDatabases(): void {
    const { value } = this.#databases;
    databases({ storage: opfs() })
      .catch(() => [])
      .then((names: string[]) => {
        const options = names.sort().map((name) => element("option", { value: name }, name));
        const first = names.length === 0 ? "No databases on this site" : "Databases of this site";
        this.#databases.replaceChildren(element("option", { value: "" }, first), ...options);
        this.#databases.disabled = names.length === 0;
        if (names.includes(value)) this.#databases.value = value;
      });
  }

  #fills(context: CanvasRenderingContext2D): Fills {
    const color = (name: string) => getComputedStyle(this.#probes[name]!).color;
    const names: (Category | "ink" | "paper" | "line")[] = [...CATEGORIES, "ink", "paper", "line"];
    const colors = Object.fromEntries(names.map((name) => [name, color(name)]));
    return fillsOf(context, colors as Record<Category | "ink" | "paper" | "line", string>);
  }

  /** Runs something that may fail, and shows why it did. */
  async #do(act: () => Promise<void> | void): Promise<void> {
    try {
      this.#error.hidden = true;
      await act();
    } catch (error) {
      if ((error as { name?: unknown }).name === "AbortError") return;
      this.#error.textContent = messageOf(error);
      this.#error.hidden = false;
      this.#progress.hidden = true;
    }
  }

  async #showExample(fill: (db: Database) => void | Promise<void>): Promise<void> {
    this.#status.textContent = "Making the example.";
    await this.open({ bytes: await filled(fill), name: "example.varve" });
  }

  /** Reads a file and shows it. */
  async #show(source: Source): Promise<void> {
    this.#work.abort();
    this.#work = new AbortController();
    const { signal } = this.#work;
    this.#progress.value = 0;
    this.#shown.setAttribute("aria-busy", "true");
    this.#progress.hidden = source.size < MAX_LOADED / 16;
    this.#status.textContent = `Reading ${source.name}.`;
    let found: Scan;
    try {
      let last = monotonicNow();
      found = await scan(source, {
        signal,
        onProgress: (partial, done) => {
          this.#progress.value = done;
          if (monotonicNow() - last < 150) return;
          last = monotonicNow();
          this.#showPartly(partial, done);
        },
      });
    } catch (error) {
      if (!signal.aborted) {
        this.#shown.hidden = true;
        this.#status.textContent = "";
        this.#source = undefined;
        this.#scan = undefined;
      }
      throw error;
    }
    this.#progress.hidden = true;
    this.#source = source;
    this.#scan = found;
    this.#keyspaces = keyspacesOf(found);
    this.#shown.hidden = false;
    this.#shown.setAttribute("aria-busy", "false");
    this.#summarize(found);
    const logs = found.slots.filter(({ kind, isAbandoned }) => kind === "log" && !isAbandoned);
    logs.sort((a, b) => b.header!.sequence - a.header!.sequence);
    const newest = logs.find(({ live }) => live > 0) ?? logs[0];
    const first = logs.find(({ damaged }) => damaged > 0) ?? newest ?? found.slots[0];
    const isThere = this.#slot !== undefined && found.slots[this.#slot.index]?.kind === "log";
    await this.#openSlot(
      isThere && this.#compaction.hasSteps ? this.#slot!.index : (first?.index ?? 0),
    );
    const own = this.#shownRecords.findIndex(
      ({ isLive, header }) =>
        isLive &&
        header.keyspace !== SYSTEM &&
        this.#keyspaces.get(header.keyspace)?.what !== "index",
    );
    if (own >= 0 && own < PAGE) this.#showRecord(own, []);
    await this.#history.show(source, found.live);
    this.#tables.show();
  }

  /** What was read so far of a file for which that takes a while. */
  #showPartly(partial: Scan, done: number): void {
    if (this.#summary.showPartly(partial, done)) {
      this.#records.replaceChildren();
      this.#record.replaceChildren();
      this.#source = undefined;
      this.#scan = undefined;
      this.#slotCaption.textContent = "";
      this.#frameCaption.textContent = "";
      this.#framesTitle.textContent = "Frames";
      this.#frameMap.element.hidden = true;
      this.#shown.hidden = false;
    }
    this.#slotMap.show(new SlotsModel(partial), 0);
  }

  /** Says what the file is and what is wrong with it. */
  #summarize(found: Scan): void {
    const problems = this.#summary.show(found, this.#keyspaces.values());
    this.#status.textContent = "";
    if (problems.length > 0) {
      this.#error.textContent = `${problems.join(" ")} varve salvage copies what is left into a new file.`;
      this.#error.hidden = false;
    }
    const isTooLarge = found.source.size > MAX_LOADED;
    this.#compact.disabled = isTooLarge || found.superblock === undefined;
    this.#compact.title = isTooLarge ? "Files above 256 MB are only shown here." : "";
  }

  async #openSlot(index: number): Promise<void> {
    const found = this.#scan;
    const slot = found?.slots[index];
    if (found === undefined) return;
    if (slot === undefined) {
      this.#frames = [];
      this.#slot = undefined;
      this.#slotMap.show(new SlotsModel(found), 0);
      this.#slotCaption.textContent = "The file has no segments yet.";
      this.#showFrames(0);
      return;
    }
    this.#slot = slot;
    this.#slotMap.show(new SlotsModel(found), index);
    this.#slotCaption.textContent = `${slotText(slot, found.segmentBytes)}.`;
    const log = slot.kind === "log" ? await readLog(found, slot) : undefined;
    // Another one may have been opened meanwhile.
    if (this.#slot !== slot || this.#scan !== found) return;
    this.#log = log;
    this.#frames = log === undefined ? [] : shownFrames(found, slot, log);
    const damaged = this.#frames.findIndex(({ state }) => state === "damaged");
    const newest = this.#frames.map(({ live }) => live > 0).lastIndexOf(true);
    this.#showFrames(Math.max(0, damaged >= 0 ? damaged : newest));
  }

  #showFrames(selected: number): void {
    const slot = this.#slot;
    const title = slot === undefined ? "Frames" : `Frames of segment ${slot.index}`;
    this.#framesTitle.textContent = title;
    this.#frameMap.element.hidden = this.#frames.length === 0;
    this.#frameMap.show(new FramesModel(this.#frames), selected);
    if (this.#frames.length > 0) {
      this.#showFrame(selected);
      return;
    }
    const what =
      slot === undefined || slot.kind === "log" ? "no frames" : `no frames: ${slotName(slot)}`;
    this.#frameCaption.textContent = `This segment has ${what}.`;
    this.#records.replaceChildren();
    this.#record.replaceChildren();
  }

  #showFrame(index: number): void {
    const one = this.#frames[index];
    if (one === undefined || this.#log === undefined || this.#scan === undefined) return;
    this.#frameMap.select(index);
    this.#frameCaption.textContent = `${frameText(one)}.`;
    this.#shownRecords = shownRecords(this.#scan, this.#log, one);
    this.#showRecords(one, 0);
    this.#record.replaceChildren();
  }

  #showRecords(one: Frame, page: number): void {
    const all = this.#shownRecords;
    const heads = ["Key", "-Collection", "What", "-#Version", "#Bytes", "State"];
    const { table: made, body } = table(`Records of ${frameName(one)}`, heads);
    for (const [i, record] of all.slice(page * PAGE, (page + 1) * PAGE).entries()) {
      const { header } = record;
      const cells = [
        button(this.#keyOf(record), () => this.#showRecord(page * PAGE + i, [])),
        this.#keyspaceName(header.keyspace),
        kindName(header.kind),
        header.version === 0 ? "" : number(header.version),
        number(header.size),
        stateSwatch(record),
      ];
      const line = row(heads, cells);
      line.dataset.record = String(page * PAGE + i);
      body.append(line);
    }
    const title = element("h4", {}, `Records of ${lower(frameName(one))}`);
    this.#records.replaceChildren(
      title,
      all.length === 0 ? element("p", { class: "facts" }, "None.") : scrolled("Records", made),
      ...pager(all.length, page, (to) => this.#showRecords(one, to)),
    );
  }

  #keyOf({ header, key }: ShownRecord): string {
    if (header.kind === KIND.transaction) {
      const log = this.#log!;
      const bytes = bytesIn(log.data, header.valueAt, header.valueLength).subarray(32);
      return new TextDecoder().decode(bytes) || "end of a note";
    }
    if (header.keyLength === 0) return "no key";
    if (header.keyspace === SYSTEM) return systemKeyText(key);
    const known = this.#keyspaces.get(header.keyspace);
    if (known?.what !== "index" || this.#log === undefined || header.valueLength < 4) {
      return keyText(known?.key, key);
    }
    // An entry ends with the key of its record.
    const at = this.#log.data.getUint32(header.valueAt, true);
    const of = key.subarray(Math.min(at, key.length));
    return `entry of ${keyText(this.#keyspaces.get(known.parent)?.key, of)}`;
  }

  #keyspaceName(keyspace: number): string {
    if (keyspace === 0) return "none";
    if (keyspace === SYSTEM) return "the engine's own";
    return this.#keyspaces.get(keyspace)?.name ?? `keyspace ${keyspace}`;
  }

  #showRecord(index: number, changed: readonly Range[]): void {
    const record = this.#shownRecords[index];
    const log = this.#log;
    if (record === undefined || log === undefined) return;
    for (const line of this.#records.querySelectorAll("[data-selected]")) {
      line.removeAttribute("data-selected");
    }
    this.#records.querySelector(`[data-record="${index}"]`)?.setAttribute("data-selected", "");
    const { header } = record;
    const model = {
      record,
      bytes: bytesIn(log.data, header.at, header.size),
      position: log.start + header.at,
      keyspace: this.#keyspaces.get(header.keyspace),
      changed,
      locked: this.#whyLocked(record),
    };
    const view = recordView(model, (field, text) =>
      this.#do(() => this.#edit(record, field, text)),
    );
    this.#record.replaceChildren(element("h4", {}, `Record ${this.#keyOf(record)}`), view);
  }

  #whyLocked({ header, isLive }: ShownRecord): string | undefined {
    const { keyspace, kind } = header;
    const known = this.#keyspaces.get(keyspace);
    if (this.#scan?.superblock === undefined) return "A damaged file is only shown here.";
    if ((this.#source?.size ?? 0) > MAX_LOADED) return "Files above 256 MB are only shown here.";
    if (!isLive) return "It is not current any more, so it cannot be changed.";
    if (keyspace === SYSTEM) return "It is one of the engine's own records.";
    if (known?.what === "index")
      return "It is an entry of an index, which changes with its record.";
    if (kind !== KIND.set) return "Its value lies elsewhere, and is only shown here.";
    if (keyspace !== 0 && known?.struct === undefined)
      return "Only fields of structs, and text, can be changed here.";
    return undefined;
  }

  async #edit(record: ShownRecord, field: Field | undefined, text: string): Promise<void> {
    const source = this.#source;
    const found = this.#scan;
    const log = this.#log;
    if (source === undefined || found === undefined || log === undefined || this.#isBusy) return;
    this.#isBusy = true;
    try {
      const { header } = record;
      const before = bytesIn(log.data, header.valueAt, header.valueLength).slice();
      const key = record.key.slice();
      const keyspace = this.#keyspaces.get(header.keyspace);
      const { version } = header;
      const result = await edited(await bytesOf(source), { keyspace, key, version, field, text });
      this.#compaction.clear();
      await this.#show(bytesSource(source.name, result.after));
      await this.#goTo(
        (one) => one.isLive && one.header.keyspace === header.keyspace && equal(one.key, key),
      );
      this.#showChanges(result, before, field);
    } finally {
      this.#isBusy = false;
    }
  }

  /** Opens the newest record for which `matches` holds. Returns its index, or -1. */
  async #goTo(matches: (record: ShownRecord) => boolean, slots?: readonly Slot[]): Promise<number> {
    const found = this.#scan;
    if (found === undefined) return -1;
    const logs = (slots ?? found.slots).filter(
      ({ kind, isAbandoned }) => kind === "log" && !isAbandoned,
    );
    logs.sort((a, b) => b.header!.sequence - a.header!.sequence);
    for (const slot of logs) {
      await this.#openSlot(slot.index);
      const log = this.#log;
      if (log === undefined) continue;
      for (let frame = this.#frames.length - 1; frame >= 0; frame -= 1) {
        const index = shownRecords(found, log, this.#frames[frame]!).findIndex(matches);
        if (index < 0) continue;
        this.#showFrame(frame);
        const page = Math.floor(index / PAGE);
        if (page > 0) this.#showRecords(this.#frames[frame]!, page);
        this.#showRecord(index, []);
        return index;
      }
    }
    return -1;
  }

  /** Says which bytes a change has changed, and marks those of the value. */
  #showChanges({ after, changed }: Edited, valueBefore: Bytes, field: Field | undefined): void {
    const index = Number(
      this.#records.querySelector("[data-selected]")?.getAttribute("data-record") ?? -1,
    );
    const record = this.#shownRecords[index];
    const list = element("ul");
    if (record !== undefined && this.#log !== undefined) {
      const { header } = record;
      const value = bytesIn(this.#log.data, header.valueAt, header.valueLength);
      const whole = { at: 0, length: Math.max(value.length, valueBefore.length) };
      const inValue = differences(valueBefore, value, [whole]);
      const start = header.valueAt - header.at;
      this.#showRecord(
        index,
        inValue.map(({ at, length }) => ({ at: at + start, length })),
      );
      const bytes = inValue.reduce((sum, { length }) => sum + length, 0);
      const where = inValue.map(
        ({ at, length }) =>
          `${hexOf(valueBefore, at, length)} → ${hexOf(value, at, length)} at ${at}`,
      );
      const few = where.slice(0, 4).join("; ");
      list.append(
        element(
          "li",
          { "data-value-changed": JSON.stringify(inValue) },
          `In the value: ${counted(bytes, "byte")}${few === "" ? "" : `: ${few}`}. The record before it stays where it was, and is not current any more.`,
        ),
      );
    }
    for (const group of groupsOf(changed, after, this.#scan!, this.#frames, this.#slot)) {
      const { name, at, length, bytes } = group;
      const text = `${name}: ${counted(bytes, "byte")} between ${number(at)} and ${number(at + length - 1)}.`;
      list.append(
        element("li", { "data-at": at, "data-length": length, "data-bytes": bytes }, text),
      );
    }
    const total = changed.reduce((sum, { length }) => sum + length, 0);
    const what = field === undefined ? "The value" : field.path.join(".");
    this.#changes.replaceChildren(
      element(
        "h4",
        {},
        `${what} was changed in the copy that is shown here: ${counted(total, "byte")} of the file differ`,
      ),
      list,
    );
    this.#changes.hidden = false;
  }

  async #runCompaction(): Promise<void> {
    const source = this.#source;
    if (source === undefined || this.#isBusy) return;
    this.#isBusy = true;
    this.#compact.disabled = true;
    this.#changes.hidden = true;
    try {
      const before = await bytesOf(source);
      this.#status.textContent = "Compacting the copy that is shown here.";
      await this.#compaction.run(before);
    } finally {
      this.#isBusy = false;
      this.#compact.disabled = false;
    }
  }

  async #saveCopy(): Promise<void> {
    const bytes = await this.bytes();
    if (bytes === undefined) return;
    const url = URL.createObjectURL(new Blob([bytes]));
    const name = this.#source?.name ?? "copy.varve";
    element("a", { href: url, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 60_000);
  }

  /** Opens the record with which a transaction begins. */
  async #goToVersion(version: number): Promise<void> {
    const slots = this.#scan?.slots.filter(
      (slot) => slot.minVersion <= version && version <= slot.maxVersion,
    );
    const index = await this.#goTo(({ header }) => header.version === version, slots);
    if (index < 0)
      throw new Error("The records of this transaction were moved or removed by compaction.");
    this.#frameMap.element.scrollIntoView({ block: "center" });
  }
}

function stateSwatch({ isLive, isIntact, header }: ShownRecord): HTMLElement {
  const isOwn = header.kind === KIND.void || header.kind === KIND.transaction;
  const [category, text] = !isIntact
    ? ["damaged", "damaged"]
    : isLive
      ? ["live", "live"]
      : isOwn
        ? ["structure", "note"]
        : ["dead", header.kind === KIND.delete ? "a deletion" : "dead"];
  return element(
    "span",
    { class: "state", "data-state": category },
    element("i", { class: `swatch ${category}` }),
    text as string,
  );
}

function equal(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, i) => byte === b[i]);
}

function lower(text: string): string {
  return text.charAt(0).toLowerCase() + text.slice(1);
}
