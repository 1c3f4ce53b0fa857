/** The bytes of one record, with the parts of its header and the fields of its struct laid over them. */

import type { Keyspace } from "./descriptors.js";
import { button, element, row, table } from "./dom.js";
import { type Field, fieldsOf, keyText, type Range, RECORD_HEADER } from "./fields.js";
import { KIND, RECORD } from "./format.js";
import type { ShownRecord } from "./records.js";
import { counted, kindName, number, size } from "./words.js";

/** The most bytes that are shown at once. */
const MAX_SHOWN = 4_096;

/** A part of a record that has a name. Ranges are relative to the record. */
interface Part {
  readonly name: string;
  readonly type: string;
  readonly text: string;
  readonly ranges: readonly Range[];
  readonly field: Field | undefined;
}

/** What is shown of a record. */
export interface RecordModel {
  readonly record: ShownRecord;
  /** All bytes of the record. */
  readonly bytes: Uint8Array<ArrayBuffer>;
  /** Position in the file. */
  readonly position: number;
  readonly keyspace: Keyspace | undefined;
  /** Bytes that differ from those of the record that this one replaced by an edit, relative to the record. */
  readonly changed: readonly Range[];
  /** Why nothing can be changed; `undefined` if something can. */
  readonly locked: string | undefined;
}

/** A person has given a field another value. */
export type OnEdit = (field: Field | undefined, text: string) => void;

export function recordView(model: RecordModel, onEdit: OnEdit): HTMLElement {
  return new RecordView(model, onEdit).element;
}

class RecordView {
  readonly element = element("div", { class: "record" });
  readonly #model: RecordModel;
  readonly #onEdit: OnEdit;
  readonly #parts: Part[];
  readonly #cells: HTMLElement[] = [];
  readonly #form = element("form", { class: "edit", hidden: true });

  constructor(model: RecordModel, onEdit: OnEdit) {
    this.#model = model;
    this.#onEdit = onEdit;
    this.#parts = partsOf(model);
    const fields = this.#fieldTable();
    const hex = this.#hex();
    this.element.append(
      element("p", { class: "facts" }, this.#facts()),
      element("div", { class: "bytes" }, fields, hex),
    );
    const { keyspace, record, locked } = model;
    const isText = keyspace === undefined && record.header.keyspace === 0;
    if (isText && record.header.kind === KIND.set && locked === undefined) this.#editText();
    this.element.append(this.#form);
    if (locked !== undefined) this.element.append(element("p", { class: "facts" }, locked));
  }

  #facts(): string {
    const { record, position } = this.#model;
    const { header, isLive, isIntact } = record;
    const state = isIntact ? (isLive ? "live" : "not current") : "damaged: its checksum is wrong";
    const expires =
      header.expiry === 0 ? "" : `, expires ${new Date(header.expiry * 1_000).toISOString()}`;
    return `${kindName(header.kind)}, ${state}${expires}; version ${number(header.version)}; ${size(header.size)} from byte ${number(position)} of the file on.`;
  }

  #fieldTable(): HTMLElement {
    const heads = ["Part", "-Type", "#Bytes", "Value"];
    const { table: made, body } = table("Parts of the record", heads);
    const { locked } = this.#model;
    for (const part of this.#parts) {
      const { field, ranges } = part;
      const at = ranges.map(({ at, length }) => `${at}–${at + length - 1}`).join(", ");
      const canEdit = field?.isEditable === true && locked === undefined;
      const name = canEdit ? button(part.name, () => this.#edit(part, field)) : part.name;
      if (canEdit) (name as HTMLElement).title = `Change ${part.name}`;
      const made = row(heads, [name, part.type, at, part.text]);
      made.dataset.part = part.name;
      made.addEventListener("pointerenter", () => this.#highlight(part));
      made.addEventListener("pointerleave", () => this.#highlight(undefined));
      made.addEventListener("focusin", () => this.#highlight(part));
      body.append(made);
    }
    return element(
      "div",
      { class: "scroll", tabindex: 0, role: "region", "aria-label": "Parts of the record" },
      made,
    );
  }

  #hex(): HTMLElement {
    const { bytes, changed } = this.#model;
    const shown = bytes.subarray(0, MAX_SHOWN);
    const names = new Array<Part | undefined>(shown.length);
    const tones = new Array<number>(shown.length);
    for (const [i, part] of this.#parts.entries()) {
      for (const { at, length } of part.ranges) {
        for (let byte = at; byte < Math.min(at + length, shown.length); byte += 1) {
          names[byte] = part;
          tones[byte] = i % 2;
        }
      }
    }
    const { at, keyAt, keyLength } = this.#model.record.header;
    const marked = new Set(
      changed.flatMap((one) => Array.from({ length: one.length }, (_, i) => one.at + i)),
    );
    const hex = element("div", {
      class: "hex",
      tabindex: 0,
      role: "img",
      "aria-label": this.#hexLabel(),
    });
    for (let from = 0; from < shown.length; from += 8) {
      const cells = element("span");
      let letters = "";
      for (let byte = from; byte < Math.min(from + 8, shown.length); byte += 1) {
        const value = shown[byte]!;
        const part = names[byte];
        const isKey = byte >= keyAt - at && byte < keyAt - at + keyLength;
        const kind = byte < RECORD ? "head" : isKey ? "key" : part?.field ? "field" : "rest";
        const cell = element("i", {
          "data-part": kind,
          "data-tone": part?.field === undefined ? undefined : tones[byte],
          "data-changed": marked.has(byte),
          title: part?.name,
        });
        cell.textContent = value.toString(16).padStart(2, "0");
        this.#cells[byte] = cell;
        cells.append(cell);
        letters += value > 31 && value < 127 ? String.fromCharCode(value) : "·";
      }
      const offset = element("span", { class: "at" }, String(from).padStart(4, " "));
      const line = element("div", { class: "row" }, offset, cells);
      line.append(element("span", { class: "text" }, letters));
      hex.append(line);
    }
    const key = element(
      "p",
      { class: "facts", "aria-hidden": "true" },
      ...hexKey(
        changed.length > 0,
        this.#parts.some(({ field }) => field !== undefined),
      ),
    );
    if (bytes.length <= MAX_SHOWN) return element("div", {}, hex, key);
    const more = `The first ${number(MAX_SHOWN)} of ${counted(bytes.length, "byte")}.`;
    return element("div", {}, hex, key, element("p", { class: "facts" }, more));
  }

  #hexLabel(): string {
    const { bytes, changed } = this.#model;
    const marks = changed.reduce((sum, { length }) => sum + length, 0);
    const more = marks > 0 ? `; ${counted(marks, "byte")} of them changed` : "";
    return `${counted(bytes.length, "byte")} in hexadecimal${more}. The table before has all parts.`;
  }

  #highlight(part: Part | undefined): void {
    for (const cell of this.#cells) cell.removeAttribute("data-on");
    for (const { at, length } of part?.ranges ?? []) {
      for (let byte = at; byte < at + length; byte += 1) {
        this.#cells[byte]?.setAttribute("data-on", "");
      }
    }
  }

  #edit(part: Part, field: Field): void {
    const { descriptor } = field;
    const names =
      "variants" in descriptor && descriptor.kind !== "union" ? descriptor.variants : undefined;
    const choices = descriptor.kind === "bool" ? ["true", "false"] : names;
    const given =
      choices === undefined
        ? element("input", {
            type: "text",
            value: part.text,
            autocomplete: "off",
            spellcheck: "false",
          })
        : element(
            "select",
            {},
            ...choices.map((one) => element("option", { selected: one === part.text }, one)),
          );
    this.#ask(`${part.name}, ${field.type}`, given, (text) => this.#onEdit(field, text));
    this.#highlight(part);
  }

  #editText(): void {
    const { bytes, record } = this.#model;
    const { valueAt, at, valueLength } = record.header;
    const value = bytes.subarray(valueAt - at, valueAt - at + valueLength);
    if (value.length > 2_000) return;
    const text = new TextDecoder().decode(value);
    if (text.includes("\ufffd")) return;
    const open = button("Change the text", () => {
      const given = element("input", { type: "text", value: text, autocomplete: "off" });
      this.#ask("value, text", given, (changed) => this.#onEdit(undefined, changed));
    });
    this.element.append(element("p", {}, open));
  }

  #ask(
    label: string,
    given: HTMLInputElement | HTMLSelectElement,
    act: (text: string) => void,
  ): void {
    const form = this.#form;
    form.hidden = false;
    form.replaceChildren(
      element("label", {}, label, given),
      element("button", { type: "submit" }, "Change it"),
    );
    form.onsubmit = (event) => {
      event.preventDefault();
      act(given.value);
    };
    form.onkeydown = (event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      form.hidden = true;
    };
    given.focus();
  }
}

/** What the marks of the bytes mean. */
function hexKey(hasChanges: boolean, hasFields: boolean): (Node | string)[] {
  const sample = (attributes: Record<string, string | boolean>, text: string) =>
    element("span", { class: "hex" }, element("i", attributes, text));
  return [
    sample({ "data-part": "head" }, "00"),
    " header and padding  ",
    sample({ "data-part": "key" }, "00"),
    " key",
    ...(hasFields
      ? ["  ", sample({ "data-tone": "0" }, "00"), sample({ "data-tone": "1" }, "00"), " fields"]
      : []),
    ...(hasChanges ? ["  ", sample({ "data-changed": true }, "00"), " changed"] : []),
  ];
}

function partsOf({ record, bytes, keyspace }: RecordModel): Part[] {
  const { header, key } = record;
  const data = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const headTexts: Record<string, string> = {
    checksum: data.getUint32(0, true).toString(16).padStart(8, "0"),
    kind: `${header.kind}, ${kindName(header.kind)}`,
    version: number(header.version),
    expiry: header.expiry === 0 ? "never" : String(header.expiry),
    "position of the replaced record": header.previous === 0 ? "none" : number(header.previous),
    "size of the replaced record, / 8": String((data.getUint32(4, true) >>> 8) & 0xff_ffff),
    keyspace: String(header.keyspace),
  };
  const parts: Part[] = RECORD_HEADER.map(([name, at, length]) => ({
    name,
    type: `u${8 * length}`,
    text:
      headTexts[name] ?? number(length === 2 ? data.getUint16(at, true) : data.getUint32(at, true)),
    ranges: [{ at, length }],
    field: undefined,
  }));
  if (header.keyLength > 0) {
    const ranges = [{ at: header.keyAt - header.at, length: header.keyLength }];
    parts.push({
      name: "key",
      type: "",
      text: keyText(keyspace?.key, key),
      ranges,
      field: undefined,
    });
  }
  const start = header.valueAt - header.at;
  const value = bytes.subarray(start, start + header.valueLength);
  if (keyspace?.struct !== undefined && header.kind === KIND.set) {
    const fields = valueParts(keyspace, value, start);
    // What matters most comes first.
    return fields === undefined ? parts : [...fields, ...parts];
  }
  if (header.valueLength > 0) {
    const ranges = [{ at: start, length: header.valueLength }];
    parts.unshift({ name: "value", type: "", text: preview(value), ranges, field: undefined });
  }
  return parts;
}

function valueParts(keyspace: Keyspace, value: Uint8Array, start: number): Part[] | undefined {
  try {
    return fieldsOf(keyspace.struct!, value).map((field) => ({
      name: field.path.join("."),
      type: field.type,
      text: field.text,
      ranges: field.ranges.map(({ at, length }) => ({ at: at + start, length })),
      field,
    }));
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}

function preview(value: Uint8Array): string {
  const text = new TextDecoder().decode(value.subarray(0, 200));
  const isCut = value.length > 200;
  // A cut may end within a letter.
  const isText = !(isCut ? text.slice(0, -1) : text).includes("\ufffd");
  return isText ? `${text}${isCut ? "…" : ""}` : counted(value.length, "byte");
}
