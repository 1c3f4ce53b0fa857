/** The inspector as a panel of the page. It is a module of its own, so that it is loaded when it is needed. */

import * as inspector from "varve/inspect";
import { fillExample } from "./example.js";

/** Shows the inspector, and in it the example. */
export function mount(root: HTMLElement): void {
  inspector.mount(root, { example: fillExample });
}
