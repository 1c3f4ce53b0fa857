/** The inspector as a panel of the page. */

import { exampleFile } from "./example.js";
import * as inspector from "./index.js";

/** Shows the inspector with its example file. */
export async function mount(root: HTMLElement): Promise<void> {
  const shown = inspector.mount(root, { example: exampleFile });
  await shown.open({ bytes: await exampleFile(), name: "example.varve" });
}
