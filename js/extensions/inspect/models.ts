/** What the two maps show: the slots of a file, and the frames of a segment. */

import { HEADER } from "./format.js";
import { type Amounts, drawStack, type Fills, type MapModel } from "./map.js";
import type { FramePart, Scan, Slot } from "./scan.js";
import { counted, number, parts, size, slotName } from "./words.js";

/** The most pixels that the map of a file takes from top to bottom. */
const MAX_HEIGHT = 320;
const LABEL = 34;
const STRIP = 30;

/** The slots of a file: strips if they are few, else cells, each of one slot or of several. */
export class SlotsModel implements MapModel {
  constructor(readonly scan: Scan) {}

  get count(): number {
    return this.scan.slots.length;
  }

  #grid(width: number): { edge: number; columns: number; each: number; rows: number } {
    const { count } = this;
    const ideal = Math.floor(Math.sqrt((width * MAX_HEIGHT) / Math.max(1, count)));
    const edge = Math.max(8, Math.min(34, ideal));
    const columns = Math.max(1, Math.floor(width / edge));
    const cells = columns * Math.floor(MAX_HEIGHT / edge);
    const each = Math.ceil(count / cells) || 1;
    return { edge, columns, each, rows: Math.ceil(count / each / columns) };
  }

  get #isStrips(): boolean {
    return this.count <= 10;
  }

  height(width: number): number {
    if (this.#isStrips) return Math.max(STRIP, this.count * STRIP);
    const { rows, edge } = this.#grid(width);
    return rows * edge + 2;
  }

  stride(width: number): number {
    if (this.#isStrips) return 1;
    const { columns, each } = this.#grid(width);
    return columns * each;
  }

  at(x: number, y: number, width: number): number {
    const last = Math.max(0, this.count - 1);
    if (this.#isStrips) return Math.min(last, Math.max(0, Math.floor(y / STRIP)));
    const { edge, columns, each } = this.#grid(width);
    const column = Math.min(columns - 1, Math.max(0, Math.floor(x / edge)));
    return Math.min(last, Math.max(0, (Math.floor(y / edge) * columns + column) * each));
  }

  text(index: number): string {
    const slot = this.scan.slots[index];
    return slot === undefined ? "" : slotText(slot, this.scan.segmentBytes);
  }

  draw(context: CanvasRenderingContext2D, fills: Fills, width: number): void {
    if (this.#isStrips) this.#drawStrips(context, fills, width);
    else this.#drawCells(context, fills, width);
  }

  mark(context: CanvasRenderingContext2D, fills: Fills, width: number, selected: number): void {
    if (this.count === 0) return;
    if (this.#isStrips) {
      const whole = width - LABEL - 2;
      frame(context, fills, true, LABEL, selected * STRIP + 3, whole, STRIP - 6);
      return;
    }
    const { x, y, width: wide, height } = this.#cell(width, selected);
    frame(context, fills, true, x, y, wide, height);
  }

  /** Where the cell of a slot is. */
  #cell(width: number, slot: number): { x: number; y: number; width: number; height: number } {
    const { edge, columns, each } = this.#grid(width);
    const cell = Math.floor(slot / each);
    return {
      x: (cell % columns) * edge + 1,
      y: Math.floor(cell / columns) * edge + 1,
      width: edge - 2,
      height: edge - 2,
    };
  }

  #drawStrips(context: CanvasRenderingContext2D, fills: Fills, width: number): void {
    const { slots, segmentBytes } = this.scan;
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    for (const [i, slot] of slots.entries()) {
      const y = i * STRIP + 3;
      const height = STRIP - 6;
      context.fillStyle = fills.ink;
      context.fillText(String(slot.index), 4, y + height / 2 + 1);
      const whole = width - LABEL - 2;
      let x = LABEL;
      for (const category of ["live", "dead", "structure", "damaged", "torn"] as const) {
        const bytes = slot[category];
        if (bytes === 0) continue;
        const wide = Math.max(2, (whole * bytes) / segmentBytes);
        context.fillStyle = fills[category];
        context.fillRect(x, y, Math.min(wide, LABEL + whole - x), height);
        x += wide;
      }
      frame(context, fills, false, LABEL, y, whole, height);
    }
  }

  #drawCells(context: CanvasRenderingContext2D, fills: Fills, width: number): void {
    const { slots, segmentBytes } = this.scan;
    const { each } = this.#grid(width);
    for (let first = 0; first < slots.length; first += each) {
      const sum = sumOf(slots.slice(first, first + each));
      const box = this.#cell(width, first);
      drawStack(context, fills, box, sum, segmentBytes * each);
      frame(context, fills, false, box.x, box.y, box.width, box.height);
    }
  }
}

function sumOf(slots: readonly Slot[]): Amounts {
  const sum = { live: 0, dead: 0, structure: 0, damaged: 0, torn: 0 };
  for (const slot of slots) {
    for (const category of ["live", "dead", "structure", "damaged", "torn"] as const) {
      sum[category] += slot[category];
    }
  }
  return sum;
}

function frame(
  context: CanvasRenderingContext2D,
  fills: Fills,
  isSelected: boolean,
  x: number,
  y: number,
  width: number,
  height: number,
): void {
  context.strokeStyle = isSelected ? fills.ink : fills.line;
  context.lineWidth = isSelected ? 2.5 : 1;
  context.strokeRect(x + 0.5, y + 0.5, width - 1, height - 1);
}

export function slotText(slot: Slot, segmentBytes: number): string {
  const { index, kind, frames, movedFrames, hasDamagedHeader, header } = slot;
  const of = kind === "log" ? `, ${counted(frames, "frame")}` : "";
  const moved = movedFrames > 0 ? `, ${number(movedFrames)} of them written by compaction` : "";
  const sequence = header === undefined ? "" : `, number ${number(header.sequence)}`;
  const damage = hasDamagedHeader ? "; one of its two headers is damaged or missing" : "";
  const content = parts(slot, segmentBytes);
  return `Segment ${index}: ${slotName(slot)}${sequence}${of}${moved}${content && `; ${content}`}${damage}`;
}

/** A frame, and what of it is live. */
export interface Frame extends FramePart {
  readonly live: number;
  readonly dead: number;
  readonly structure: number;
}

const ROW = 26;

/** The frames of a segment, to scale, in rows like those of text. */
export class FramesModel implements MapModel {
  /** Where the last frame ends, relative to the segment. */
  readonly end: number;

  constructor(readonly frames: readonly Frame[]) {
    const last = frames.at(-1);
    this.end = last === undefined ? HEADER : last.at + last.length;
  }

  get count(): number {
    return this.frames.length;
  }

  #rows(width: number): number {
    return Math.max(1, Math.min(10, Math.ceil((this.count * 14) / Math.max(1, width))));
  }

  height(width: number): number {
    return this.#rows(width) * ROW;
  }

  stride(width: number): number {
    return Math.max(1, Math.round(this.count / this.#rows(width)));
  }

  /** Pixels of a position, counted over all rows. */
  #scale(width: number): number {
    return (this.#rows(width) * width) / Math.max(1, this.end - HEADER);
  }

  at(x: number, y: number, width: number): number {
    const row = Math.max(0, Math.min(this.#rows(width) - 1, Math.floor(y / ROW)));
    const position =
      HEADER + (row * width + Math.max(0, Math.min(x, width - 1))) / this.#scale(width);
    return frameAt(this.frames, position);
  }

  text(index: number): string {
    const one = this.frames[index];
    return one === undefined ? "" : frameText(one);
  }

  draw(context: CanvasRenderingContext2D, fills: Fills, width: number): void {
    const scale = this.#scale(width);
    const columns = this.#rows(width) * width;
    // For each column of one pixel the bytes of its frames, since there may be more frames than pixels.
    let column = 0;
    let sum: Required<Amounts> = blank();
    const flush = () => {
      const { live, dead, structure, damaged, torn } = sum;
      const whole = live + dead + structure + damaged + torn;
      const x = column % width;
      const y = Math.floor(column / width) * ROW + 2;
      drawStack(context, fills, { x, y, width: 1, height: ROW - 4 }, sum, whole);
      sum = blank();
    };
    for (const one of this.frames) {
      const from = (one.at - HEADER) * scale;
      const to = (one.at + one.length - HEADER) * scale;
      const amounts = amountsOf(one);
      for (let x = Math.floor(from); x < to && x < columns; x += 1) {
        if (x !== column) {
          flush();
          column = x;
        }
        const part = (Math.min(to, x + 1) - Math.max(from, x)) / (to - from);
        for (const [category, bytes] of amounts) sum[category] += bytes * part;
      }
    }
    flush();
    context.fillStyle = fills.paper;
    for (const one of this.frames) {
      if (one.length * scale < 4) continue;
      const x = Math.floor((one.at - HEADER) * scale);
      context.fillRect(x % width, Math.floor(x / width) * ROW, 1, ROW);
    }
  }

  mark(context: CanvasRenderingContext2D, fills: Fills, width: number, selected: number): void {
    const one = this.frames[selected];
    if (one === undefined) return;
    const scale = this.#scale(width);
    const from = Math.floor((one.at - HEADER) * scale);
    const to = Math.max(from + 4, Math.ceil((one.at + one.length - HEADER) * scale));
    for (let row = Math.floor(from / width); row <= Math.floor((to - 1) / width); row += 1) {
      const left = Math.max(from - row * width, 0);
      const right = Math.min(to - row * width, width);
      context.strokeStyle = fills.paper;
      context.lineWidth = 5;
      context.strokeRect(left + 1, row * ROW + 1.5, Math.max(2, right - left - 2), ROW - 3);
      context.strokeStyle = fills.ink;
      context.lineWidth = 2.5;
      context.strokeRect(left + 1, row * ROW + 1.5, Math.max(2, right - left - 2), ROW - 3);
    }
  }
}

/** The index of the last frame that begins at or before this offset in its segment; 0 if none does. */
export function frameAt(frames: readonly Frame[], offset: number): number {
  let [low, high] = [0, Math.max(0, frames.length - 1)];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (frames[middle]!.at <= offset) low = middle;
    else high = middle - 1;
  }
  return low;
}

function blank(): Required<Amounts> {
  return { live: 0, dead: 0, structure: 0, damaged: 0, torn: 0, free: 0 };
}

function amountsOf({ state, length, live, dead, structure }: Frame): [keyof Amounts, number][] {
  if (state === "damaged") return [["damaged", length]];
  if (state === "torn") return [["torn", length]];
  if (state === "leftover") return [["free", length]];
  return [
    ["live", live],
    ["dead", dead],
    ["structure", structure],
  ];
}

export function frameName({ state, header, length }: Frame): string {
  if (header === undefined)
    return state === "leftover" ? "Earlier use" : `${size(length)} of damage`;
  return `Frame ${number(header.number)}`;
}

export function frameText(one: Frame): string {
  const { state, header, length, live, dead } = one;
  const name = frameName(one);
  if (state === "damaged") {
    return `${name}: damaged, ${size(length)}; its checksum is wrong`;
  }
  if (state === "torn") return `${name}: ${size(length)} that were never completely written`;
  if (state === "leftover") return `${name}: ${size(length)} left from an earlier use of the slot`;
  const records = counted(header?.records ?? 0, "record");
  const by = header?.moved ? ", written by compaction" : "";
  const more = header?.commits ? "" : ", not the last of its commit";
  const bytes = [
    ...(live > 0 ? [`${size(live)} live`] : []),
    ...(dead > 0 ? [`${size(dead)} replaced or deleted`] : []),
  ];
  const what = header?.records === 0 ? "a witness, which says how much was flushed" : records;
  return `${name}: ${what}, ${size(length)}${by}${more}${bytes.length > 0 ? `; ${bytes.join(", ")}` : ""}`;
}
