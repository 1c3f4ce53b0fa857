/** The inspector as a panel of the page. */

import { exampleFile } from "./example.js";
import { type Inspector, mount } from "./index.js";

/** Shows the inspector with its example file. */
export async function showPanel(element: HTMLElement): Promise<Inspector> {
  const inspector = mount(element, { example: exampleFile });
  await inspector.open({ bytes: await exampleFile(), name: "example.varve" });
  return inspector;
}
