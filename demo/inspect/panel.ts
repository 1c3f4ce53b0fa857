/** The inspector as a panel of the page. It is a module of its own, so that it is loaded when it is needed. */

import { type Inspector, mount } from "varve/inspect";
import { fillExample } from "./example.js";

/** Shows the inspector, and in it the example. */
export function showPanel(element: HTMLElement): Inspector {
  return mount(element, { example: fillExample });
}
