/** Drawings of many bytes by what they are: on a canvas, with the keyboard of a slider, so that arrow keys move in them. */

import type { Category } from "./words.js";

export type Amounts = Partial<Record<Category, number>>;

/** The fill of each category, as the page's theme has it now. */
export type Fills = Readonly<Record<Category, string | CanvasPattern>> & {
  readonly ink: string;
  readonly paper: string;
  readonly line: string;
};

/** Bytes are drawn from the bottom in this order, so that damage is never hidden below other bytes. */
const STACK: readonly Category[] = ["damaged", "torn", "live", "dead", "structure"];

/** Patterns, because not everyone sees the difference between colours. `colors` are CSS colours. */
export function fillsOf(
  context: CanvasRenderingContext2D,
  colors: Readonly<Record<Category | "ink" | "paper" | "line", string>>,
): Fills {
  const ratio = devicePixelRatio;
  const pattern = (
    background: string,
    foreground: string,
    draw: (tile: CanvasRenderingContext2D, size: number) => void,
  ) => {
    const tile = document.createElement("canvas");
    const edge = Math.max(4, Math.round(6 * ratio));
    tile.width = edge;
    tile.height = edge;
    const inner = tile.getContext("2d");
    if (inner === null) return background;
    inner.fillStyle = background;
    inner.fillRect(0, 0, edge, edge);
    inner.strokeStyle = foreground;
    inner.lineWidth = Math.max(1, 1.25 * ratio);
    inner.beginPath();
    draw(inner, edge);
    inner.stroke();
    const made = context.createPattern(tile, "repeat");
    made?.setTransform(new DOMMatrix([1 / ratio, 0, 0, 1 / ratio, 0, 0]));
    return made ?? background;
  };
  return {
    ...colors,
    dead: pattern(colors.paper, colors.dead, (tile, edge) => {
      tile.moveTo(-1, edge + 1);
      tile.lineTo(edge + 1, -1);
      tile.moveTo(-edge / 2 - 1, edge / 2 + 1);
      tile.lineTo(edge / 2 + 1, -edge / 2 - 1);
      tile.moveTo(edge / 2 - 1, edge * 1.5 + 1);
      tile.lineTo(edge * 1.5 + 1, edge / 2 - 1);
    }),
    structure: pattern(colors.paper, colors.structure, (tile, edge) => {
      tile.moveTo(0, edge / 2);
      tile.lineTo(edge, edge / 2);
    }),
    damaged: pattern(colors.damaged, colors.paper, (tile, edge) => {
      tile.moveTo(0, 0);
      tile.lineTo(edge, edge);
      tile.moveTo(edge, 0);
      tile.lineTo(0, edge);
    }),
    torn: pattern(colors.paper, colors.torn, (tile, edge) => {
      tile.moveTo(edge / 2, 0);
      tile.lineTo(edge / 2, edge);
    }),
    free: colors.paper,
  };
}

/** Fills a box with amounts, stacked; what is missing to `whole` stays free. */
export function drawStack(
  context: CanvasRenderingContext2D,
  fills: Fills,
  box: { x: number; y: number; width: number; height: number },
  amounts: Amounts,
  whole: number,
): void {
  const { x, y, width, height } = box;
  let bottom = y + height;
  for (const category of STACK) {
    const bytes = amounts[category] ?? 0;
    if (bytes <= 0 || whole <= 0) continue;
    // Whatever there is, is seen.
    const high = Math.max(1, (height * bytes) / whole);
    context.fillStyle = fills[category];
    context.fillRect(x, Math.max(y, bottom - high), width, Math.min(high, bottom - y));
    bottom -= high;
  }
}

/** What a map shows. */
export interface MapModel {
  readonly count: number;
  /** The height that it needs at this width, in CSS pixels. */
  height(width: number): number;
  /** Draws all items. */
  draw(context: CanvasRenderingContext2D, fills: Fills, width: number): void;
  /** Marks the item that is selected. */
  mark(context: CanvasRenderingContext2D, fills: Fills, width: number, selected: number): void;
  /** The item at a point. */
  at(x: number, y: number, width: number): number;
  /** What arrow up and down move by. */
  stride(width: number): number;
  /** An item in words. */
  text(index: number): string;
}

/** What a map does when it is used. */
export interface MapEvents {
  onMove(index: number): void;
  onOpen(index: number): void;
  onClose(): void;
}

/** An element with a canvas of which one item is selected. */
export class ItemMap {
  readonly element = document.createElement("div");
  readonly #canvas = document.createElement("canvas");
  /** All items without a mark, which takes longer to draw than to copy. */
  readonly #unmarked = document.createElement("canvas");
  /** With what they were drawn; `undefined` until they are drawn again. */
  #drawnWith: Fills | undefined;
  readonly #events: MapEvents;
  readonly #fills: (context: CanvasRenderingContext2D) => Fills;
  #model: MapModel | undefined;
  #selected = 0;
  #frame = 0;

  constructor(
    label: string,
    fills: (context: CanvasRenderingContext2D) => Fills,
    events: MapEvents,
  ) {
    this.#events = events;
    this.#fills = fills;
    const { element } = this;
    element.className = "map";
    element.tabIndex = 0;
    element.setAttribute("role", "slider");
    element.setAttribute("aria-label", label);
    element.setAttribute("aria-valuemin", "1");
    element.append(this.#canvas);
    element.addEventListener("keydown", (event) => this.#onKey(event));
    element.addEventListener("click", (event) => this.#onClick(event));
    new ResizeObserver(() => this.redraw()).observe(element);
  }

  get selected(): number {
    return this.#selected;
  }

  /** Shows another model, or the same one as it is now. */
  show(model: MapModel, selected = this.#selected): void {
    this.#model = model;
    this.#selected = Math.max(0, Math.min(selected, model.count - 1));
    this.#describe();
    this.redraw();
  }

  /** Moves to an item without an event. */
  select(index: number): void {
    this.#selected = index;
    this.#describe();
    this.#drawSoon();
  }

  /** Draws everything again, as after a change of its size or of the page's theme. */
  redraw(): void {
    this.#drawnWith = undefined;
    this.#drawSoon();
  }

  #drawSoon(): void {
    cancelAnimationFrame(this.#frame);
    this.#frame = requestAnimationFrame(() => this.#draw());
  }

  #describe(): void {
    const model = this.#model;
    if (model === undefined) return;
    const { element } = this;
    element.setAttribute("aria-valuemax", String(Math.max(1, model.count)));
    element.setAttribute("aria-valuenow", String(Math.min(model.count, this.#selected + 1) || 1));
    element.setAttribute(
      "aria-valuetext",
      model.count === 0 ? "nothing" : model.text(this.#selected),
    );
  }

  #draw(): void {
    const model = this.#model;
    const width = Math.floor(this.element.clientWidth);
    if (model === undefined || width === 0) return;
    const height = Math.ceil(model.height(width));
    const ratio = devicePixelRatio;
    const canvas = this.#canvas;
    const unmarked = this.#unmarked;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
    const context = canvas.getContext("2d");
    const all = unmarked.getContext("2d");
    if (context === null || all === null) return;
    let fills = this.#drawnWith;
    if (fills === undefined || unmarked.width !== canvas.width) {
      fills = this.#fills(all);
      this.#drawnWith = fills;
      unmarked.width = canvas.width;
      unmarked.height = canvas.height;
      all.scale(ratio, ratio);
      model.draw(all, fills, width);
    }
    if (unmarked.width > 0 && unmarked.height > 0) context.drawImage(unmarked, 0, 0);
    context.scale(ratio, ratio);
    model.mark(context, fills, width, this.#selected);
  }

  #move(index: number): void {
    const count = this.#model?.count ?? 0;
    const next = Math.max(0, Math.min(index, count - 1));
    if (next === this.#selected || count === 0) return;
    this.select(next);
    this.#events.onMove(next);
  }

  #onKey(event: KeyboardEvent): void {
    const model = this.#model;
    if (model === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    const stride = model.stride(this.element.clientWidth);
    const at = this.#selected;
    const to: Record<string, number> = {
      ArrowRight: at + 1,
      ArrowLeft: at - 1,
      ArrowDown: at + stride,
      ArrowUp: at - stride,
      PageDown: at + 10 * stride,
      PageUp: at - 10 * stride,
      Home: 0,
      End: model.count - 1,
    };
    const next = to[event.key];
    if (next !== undefined) this.#move(next);
    else if (event.key === "Enter" || event.key === " ") this.#events.onOpen(at);
    else if (event.key === "Escape") this.#events.onClose();
    else return;
    event.preventDefault();
  }

  #onClick(event: MouseEvent): void {
    const model = this.#model;
    if (model === undefined || model.count === 0) return;
    const { left, top } = this.#canvas.getBoundingClientRect();
    const width = Math.floor(this.element.clientWidth);
    const index = model.at(event.clientX - left, event.clientY - top, width);
    this.select(index);
    this.#events.onMove(index);
    this.#events.onOpen(index);
  }
}
