/** The element that shows a file: its segments, their frames, their records and their bytes. */

import { type Database, databases, opfs } from "../../index.js";
import { monotonicNow, setTimeout } from "../../util/clock.js";
import { type Keyspace, keyspacesOf } from "./descriptors.js";
import { button, element, row, table } from "./dom.js";
import { type Field, hex, keyText, type Range } from "./fields.js";
import {
  DATA_START,
  HEADER,
  KIND,
  type LogBytes,
  SUPERBLOCK,
  SUPERBLOCK_STRIDE,
  SYSTEM,
} from "./format.js";
import { type Fills, fillsOf, ItemMap } from "./map.js";
import {
  type Frame,
  FramesModel,
  frameAt,
  frameName,
  frameText,
  SlotsModel,
  slotText,
} from "./models.js";
import { recordView } from "./record-view.js";
import { type ShownRecord, shownFrames, shownRecords } from "./records.js";
import { bytesIn, readLog, type Scan, type Slot, scan, totalsOf } from "./scan.js";
import { blobSource, bytesOf, bytesSource, type Source } from "./source.js";
import { STYLES } from "./styles.js";
import {
  CATEGORIES,
  CATEGORY_NAMES,
  type Category,
  counted,
  kindName,
  number,
  share,
  size,
  slotName,
} from "./words.js";
import {
  compacted,
  differences,
  type Edited,
  edited,
  filled,
  type HistoryItem,
  historyOf,
  messageOf,
} from "./workbench.js";

type Bytes = Uint8Array<ArrayBuffer>;

/** What is shown, and what may be chosen. */
export interface InspectOptions {
  /** The bytes of a database. They are not changed, and must not be changed while they are shown. */
  readonly bytes?: Uint8Array<ArrayBuffer> | ArrayBuffer;
  /** A file, of which only what is shown is read. */
  readonly file?: Blob;
  /**
   * The name of a database of this origin (of `opfs()`), which may be open elsewhere; or an open database, of whose
   * current content an `export` is shown.
   */
  readonly database?: string | Database;
  /** The name to show for `bytes`, and for a `file` that has none. */
  readonly name?: string;
  /**
   * Fills an empty database in memory with an example, which a button shows. Without it there is no such button. It is
   * shown first if nothing else is.
   */
  readonly example?: (db: Database) => void | Promise<void>;
}

/** A mounted inspector. */
export interface Inspector {
  /** Shows something else. Resolves when all of it was read, or was found to be unreadable. */
  open(source: Pick<InspectOptions, "bytes" | "file" | "database" | "name">): Promise<void>;
  /** A copy of the bytes that are shown, with what was changed here; `undefined` while nothing is shown. */
  bytes(): Promise<Bytes | undefined>;
  /** Ends what is being read, and removes the inspector from its element. */
  close(): void;
}

/** No larger file is loaded into memory to be changed or opened. Larger ones are only read. */
const MAX_LOADED = 256 * 1_048_576;
const PAGE = 50;
const HISTORY = 200;
const STEP_MS = 900;

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
  readonly #name = element("h3");
  readonly #facts = element("p", { class: "facts" });
  readonly #share = element("div", { class: "share", "aria-hidden": "true" });
  readonly #legend = element("ul", {
    class: "legend",
    "aria-label": "What the bytes of the file are",
  });
  readonly #steps = element("div", { class: "steps", hidden: true });
  readonly #slotCaption = element("p", { class: "caption" });
  readonly #framesTitle = element("h4", {}, "Frames");
  readonly #frameCaption = element("p", { class: "caption" });
  readonly #records = element("div", { class: "part", "data-part": "records" });
  readonly #record = element("div", { class: "part", "data-part": "record" });
  readonly #changes = element("div", { class: "changes", role: "status", hidden: true });
  readonly #history = element("details", { class: "part", "data-part": "history" });
  readonly #tables = element("details", { class: "part", "data-part": "tables" });
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
  #stepFiles: Bytes[] = [];
  #isBusy = false;

  constructor(host: HTMLElement, options: InspectOptions) {
    this.#options = options;
    host.append(this.#container);
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

  async open(given: Pick<InspectOptions, "bytes" | "file" | "database" | "name">): Promise<void> {
    await this.#do(async () => {
      const source = await sourceOf(given);
      this.#stepFiles = [];
      this.#showSteps();
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
      this.#name,
      this.#facts,
      this.#share,
      this.#legend,
      element("div", { class: "actions" }, this.#compact, this.#save, this.#steps),
      this.#changes,
      element("div", { class: "body" }, left, right),
      this.#history,
      this.#tables,
    );
    this.#root.append(probes, sources, this.#progress, this.#status, this.#error, this.#shown);
    this.#fillLazily(this.#history, "The log as history", () => this.#showHistory());
    this.#fillLazily(this.#tables, "Segments and frames as tables", () => this.#showTables());
  }

  /** Fills details when they are opened, and again when something else is shown meanwhile. */
  #fillLazily(details: HTMLDetailsElement, title: string, fill: () => Promise<void> | void): void {
    details.append(element("summary", {}, title), element("div"));
    details.addEventListener("toggle", () => {
      if (details.open) void this.#do(fill);
    });
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
      isThere && this.#stepFiles.length > 0 ? this.#slot!.index : (first?.index ?? 0),
    );
    const own = this.#shownRecords.findIndex(
      ({ isLive, header }) =>
        isLive &&
        header.keyspace !== SYSTEM &&
        this.#keyspaces.get(header.keyspace)?.what !== "index",
    );
    if (own >= 0 && own < PAGE) this.#showRecord(own, []);
    for (const [details, fill] of [
      [this.#history, () => this.#showHistory()],
      [this.#tables, () => this.#showTables()],
    ] as const) {
      details.lastElementChild?.replaceChildren();
      if (details.open) await fill();
    }
  }

  /** What was read so far of a file for which that takes a while. */
  #showPartly(partial: Scan, done: number): void {
    if (this.#name.textContent !== partial.source.name) {
      for (const part of [this.#share, this.#legend, this.#records, this.#record]) {
        part.replaceChildren();
      }
      this.#source = undefined;
      this.#scan = undefined;
      this.#slotCaption.textContent = "";
      this.#frameCaption.textContent = "";
      this.#framesTitle.textContent = "Frames";
      this.#frameMap.element.hidden = true;
      this.#shown.hidden = false;
      this.#name.textContent = partial.source.name;
    }
    const { size: bytes } = partial.source;
    this.#facts.textContent = `${size(bytes)}, ${share(done * bytes, bytes)} of it read. Which records are live is known at the end.`;
    this.#slotMap.show(new SlotsModel(partial), 0);
  }

  #summarize(found: Scan): void {
    const { source, slots, superblock, superblocks, segmentBytes, lastFrame, flushed } = found;
    const totals = totalsOf(found);
    this.#name.textContent = source.name;
    const names = [...this.#keyspaces.values()].filter(({ what }) => what === "collection");
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
    this.#status.textContent = "";
    if (problems.length > 0) {
      this.#error.textContent = `${problems.join(" ")} varve salvage copies what is left into a new file.`;
      this.#error.hidden = false;
    }
    const isTooLarge = source.size > MAX_LOADED;
    this.#compact.disabled = isTooLarge || superblock === undefined;
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
      all.length === 0
        ? element("p", { class: "facts" }, "None.")
        : element(
            "div",
            { class: "scroll", tabindex: 0, role: "region", "aria-label": "Records" },
            made,
          ),
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
      this.#stepFiles = [];
      this.#showSteps();
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
      const steps = await compacted(before);
      this.#stepFiles = [before, ...steps];
      const isStill = matchMedia("(prefers-reduced-motion: reduce)").matches;
      const last = this.#stepFiles.length - 1;
      for (let step = isStill ? last : 0; step <= last; step += 1) {
        await this.#showStep(step);
        if (step < last) await new Promise((resolve) => setTimeout(resolve, STEP_MS));
      }
    } finally {
      this.#isBusy = false;
      this.#compact.disabled = false;
    }
  }

  async #showStep(step: number): Promise<void> {
    const file = this.#stepFiles[step];
    const name = this.#source?.name ?? "";
    if (file === undefined) return;
    await this.#show(bytesSource(name, file));
    this.#showSteps(step);
  }

  /** A slider over the steps of a compaction. */
  #showSteps(step = 0): void {
    const last = this.#stepFiles.length - 1;
    this.#steps.hidden = last < 1;
    if (last < 1) return;
    const file = this.#stepFiles[step]!;
    const title = step === 0 ? "Before" : step === last ? "After" : `Step ${step} of ${last}`;
    const text = `${title}: the file has ${size(file.length)}`;
    let slider = this.#steps.querySelector("input");
    let label = this.#steps.querySelector("span");
    if (slider === null || label === null) {
      const made = element("input", {
        type: "range",
        min: 0,
        "aria-label": "Steps of the compaction",
      });
      made.addEventListener("input", () => {
        if (!this.#isBusy) void this.#do(() => this.#showStep(Number(made.value)));
      });
      slider = made;
      label = element("span", { class: "facts" });
      this.#steps.append(slider, label);
    }
    slider.max = String(last);
    slider.value = String(step);
    slider.setAttribute("aria-valuetext", text);
    label.textContent = text;
  }

  async #saveCopy(): Promise<void> {
    const bytes = await this.bytes();
    if (bytes === undefined) return;
    const url = URL.createObjectURL(new Blob([bytes]));
    const name = this.#source?.name ?? "copy.varve";
    element("a", { href: url, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 60_000);
  }

  async #showHistory(): Promise<void> {
    const source = this.#source;
    const content = this.#history.lastElementChild;
    if (source === undefined || content === null || content.childElementCount > 0) return;
    if (source.size > MAX_LOADED) {
      content.replaceChildren(
        element(
          "p",
          {},
          "Files above 256 MB are not opened here. varve log FILE lists their transactions.",
        ),
      );
      return;
    }
    content.replaceChildren(element("p", { class: "facts" }, "Opening the file."));
    const { items, stats, problem } = await historyOf(await bytesOf(source), HISTORY);
    if (this.#source !== source) return;
    const shown: HTMLElement[] = [];
    if (problem !== undefined) shown.push(element("p", { class: "error" }, problem));
    if (stats !== undefined) {
      const { live } = this.#scan!;
      const same =
        stats.liveBytes === live
          ? "the same that the drawing has"
          : `while the drawing has ${number(live)}`;
      shown.push(
        element(
          "p",
          { class: "facts", "data-live": stats.liveBytes },
          `db.stats() says ${number(stats.liveBytes)} live bytes, ${same}. The newest ${counted(items.length, "transaction")}, as db.log() gives them:`,
        ),
      );
    }
    if (items.length > 0) shown.push(this.#historyTable(items));
    content.replaceChildren(...shown);
  }

  #historyTable(items: readonly HistoryItem[]): HTMLElement {
    const heads = ["#Number", "-Time", "Note", "Records"];
    const { table: made, body } = table("Transactions, the newest first", heads);
    for (const item of items) {
      const { number: of, time, note, moved, count, records, afterGap } = item;
      const what = records.map(
        ({ type, collection, key }) =>
          `${type} ${collection === undefined ? "" : `${collection}/`}${key}`,
      );
      const more = count > records.length ? `, and ${number(count - records.length)} more` : "";
      body.append(
        row(heads, [
          moved ? number(of) : button(number(of), () => this.#do(() => this.#goToVersion(of))),
          time === undefined ? "" : time.toISOString().slice(0, 19).replace("T", " "),
          moved ? "moved by compaction" : (note ?? ""),
          `${what.join(", ")}${more}`,
        ]),
      );
      if (!afterGap) continue;
      const gap = element(
        "tr",
        { class: "gap" },
        element("td", { colspan: heads.length }, "Compaction removed what was before."),
      );
      body.append(gap);
    }
    return element(
      "div",
      { class: "scroll", tabindex: 0, role: "region", "aria-label": "Transactions" },
      made,
    );
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

  #showTables(): void {
    const content = this.#tables.lastElementChild;
    if (content === null || content.childElementCount > 0) return;
    const slots = element("div");
    const frames = element("div");
    content.append(slots, frames);
    this.#showSlotTable(slots, frames, 0);
    this.#showFrameTable(frames, 0);
  }

  #showSlotTable(into: HTMLElement, frames: HTMLElement, page: number): void {
    const found = this.#scan;
    if (found === undefined) return;
    const heads = ["Segment", "What", "#Frames", "#Live", "#Dead", "#Damaged"];
    const { table: made, body } = table("Segments of the file", heads);
    for (const slot of found.slots.slice(page * PAGE, (page + 1) * PAGE)) {
      const open = button(String(slot.index), () =>
        this.#do(async () => {
          await this.#openSlot(slot.index);
          this.#showFrameTable(frames, 0);
        }),
      );
      const figures = [slot.frames, slot.live, slot.dead, slot.damaged].map(number);
      body.append(row(heads, [open, slotName(slot), ...figures]));
    }
    into.replaceChildren(
      element(
        "div",
        { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table of segments" },
        made,
      ),
      ...pager(found.slots.length, page, (to) => this.#showSlotTable(into, frames, to)),
    );
  }

  #showFrameTable(into: HTMLElement, page: number): void {
    const heads = ["Frame", "State", "#Position", "#Records", "#Bytes", "#Live", "#Dead"];
    const title = `Frames of segment ${this.#slot?.index ?? 0}`;
    const { table: made, body } = table(title, heads);
    const all = this.#frames;
    for (const [i, one] of all.slice(page * PAGE, (page + 1) * PAGE).entries()) {
      const { state, header, at, length, live, dead } = one;
      const open = button(frameName(one), () => this.#showFrame(page * PAGE + i));
      const figures = [(this.#slot?.start ?? 0) + at, header?.records ?? 0, length, live, dead];
      body.append(row(heads, [open, state, ...figures.map(number)]));
    }
    into.replaceChildren(
      element("h4", {}, title),
      element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": title }, made),
      ...pager(all.length, page, (to) => this.#showFrameTable(into, to)),
    );
  }
}

async function sourceOf(
  given: Pick<InspectOptions, "bytes" | "file" | "database" | "name">,
): Promise<Source> {
  const { bytes, file, database, name } = given;
  if (bytes !== undefined) {
    const own = bytes instanceof Uint8Array ? bytes : new Uint8Array(bytes);
    return bytesSource(name ?? "bytes", own);
  }
  if (file !== undefined) return blobSource((file as Partial<File>).name ?? name ?? "file", file);
  if (typeof database === "string") {
    const stored = await opfs().snapshot?.(database);
    if (stored === undefined)
      throw new Error(`There is no database "${database}" on this site any more.`);
    return blobSource(database, stored);
  }
  if (database !== undefined) {
    const copy = new Uint8Array(await new Response(database.export()).arrayBuffer());
    return bytesSource(name ?? "database", copy);
  }
  throw new TypeError("Give bytes, a file or a database to inspect.");
}

/** The engine's keys as text. They are a word, and behind a slash a name or numbers of the highest byte first. */
function systemKeyText(key: Uint8Array): string {
  const slash = key.indexOf(47) + 1;
  const word = new TextDecoder().decode(key.subarray(0, slash));
  const rest = key.subarray(slash);
  if (word === "" || word === "collection/" || word === "ids/" || word === "migration/") {
    return new TextDecoder().decode(key);
  }
  const isIndex = word === "index/";
  const digits = isIndex ? rest.subarray(0, 4) : rest.subarray(0, 8);
  const figure = digits.reduce((sum, byte) => sum * 256 + byte, 0);
  const more = rest.subarray(digits.length);
  if (isIndex) return `${word}${figure}/${new TextDecoder().decode(more)}`;
  return `${word}${figure}${more.length > 0 ? `/${hex(more)}` : ""}`;
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

function pager(count: number, page: number, go: (page: number) => void): HTMLElement[] {
  const pages = Math.ceil(count / PAGE);
  if (pages < 2) return [];
  const before = button("Before", () => go(page - 1));
  const next = button("Next", () => go(page + 1));
  before.disabled = page === 0;
  next.disabled = page === pages - 1;
  const end = Math.min(count, (page + 1) * PAGE);
  const text = `${number(page * PAGE + 1)} to ${number(end)} of ${number(count)}`;
  return [element("div", { class: "pages" }, before, next, text)];
}

interface Group extends Range {
  readonly name: string;
  bytes: number;
}

/** Changed bytes by the part of the file in which they lie. */
function groupsOf(
  changed: readonly Range[],
  after: Bytes,
  found: Scan,
  frames: readonly Frame[],
  opened: Slot | undefined,
): Group[] {
  const groups = new Map<string, { name: string; from: number; to: number; bytes: number }>();
  for (const { at, length } of changed) {
    // A range may go from one part into the next.
    for (let byte = at; byte < Math.min(at + length, after.length); byte += 1) {
      const name = partName(byte, found, frames, opened);
      const group = groups.get(name);
      if (group === undefined) groups.set(name, { name, from: byte, to: byte, bytes: 1 });
      else {
        group.to = byte;
        group.bytes += 1;
      }
    }
  }
  return [...groups.values()].map(({ name, from, to, bytes }) => ({
    name,
    at: from,
    length: to - from + 1,
    bytes,
  }));
}

function partName(
  byte: number,
  found: Scan,
  frames: readonly Frame[],
  opened: Slot | undefined,
): string {
  if (byte < SUPERBLOCK) return "The first superblock, which says how the file was closed";
  if (byte < SUPERBLOCK_STRIDE + SUPERBLOCK)
    return "The second superblock, which says how the file was closed";
  const slot = found.slots[Math.floor((byte - DATA_START) / found.segmentBytes)];
  if (slot === undefined) return "Unused bytes";
  const offset = byte - slot.start;
  const of = `of segment ${slot.index}`;
  if (slot.kind !== "log") return `Segment ${slot.index}, ${slotName(slot)}`;
  if (offset < HEADER) return `The header ${of}`;
  if (offset >= found.segmentBytes - HEADER) return `The copy of the header ${of}`;
  if (slot !== opened) return `Frames ${of}`;
  const frame = frames[frameAt(frames, offset)];
  if (frame === undefined || offset >= frame.at + frame.length) return `Unused bytes ${of}`;
  const { header } = frame;
  const what = header?.records === 0 ? "a witness of the flush" : "the commit";
  return `${frameName(frame)}, ${what}`;
}

function hexOf(bytes: Uint8Array, at: number, length: number): string {
  const shown = bytes.subarray(at, at + Math.min(length, 8));
  return Array.from(shown, (byte) => byte.toString(16).padStart(2, "0")).join(" ") || "nothing";
}

function equal(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, i) => byte === b[i]);
}

function lower(text: string): string {
  return text.charAt(0).toLowerCase() + text.slice(1);
}
