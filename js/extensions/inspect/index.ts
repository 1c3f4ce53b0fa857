/**
 * Draws a varve database: its segments and frames, live against dead, its records, and their bytes with the fields of
 * structs laid over them.
 */

import { type InspectOptions, type Inspector, InspectorView } from "./inspector.js";

export {
  type Analysis,
  type AnalyzeOptions,
  analyze,
  type FrameReport,
  type SegmentReport,
} from "./analyze.js";
export type { InspectOptions, Inspector } from "./inspector.js";
export { NotReadableError, type SlotKind, type Totals } from "./scan.js";

/**
 * Adds an inspector to an element of a page. What it shows is never changed: changes are made in a copy in memory.
 *
 * ```ts
 * const inspector = mount(document.querySelector("#inspector"), { database: "shop" });
 * ```
 *
 * @param element where it goes. Its other children stay
 * @param options what to show first: `bytes`, a `file` or a `database`. Without any, it waits for a file that is dropped
 * @returns the inspector, until its `close()`. What cannot be read is said in it, not thrown
 */
export function mount(element: HTMLElement, options: InspectOptions = {}): Inspector {
  const view = new InspectorView(element, options);
  void view.openFirst();
  return view;
}
