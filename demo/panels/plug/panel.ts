/** Crashes in the middle of writes: of a worker, and of a simulated disk. */

import { codeOf } from "../code.js";
import commitsSource from "./commits.ts?raw";
import diskSource from "./disk.ts?raw";
import { DiskPanel } from "./disk-panel.js";
import html from "./panel.html?raw";
import plugDiskSource from "./plug-disk.ts?raw";
import plugWriterSource from "./plug-writer.ts?raw";
import { WorkerPanel } from "./worker-panel.js";

export function mount(root: HTMLElement): void {
  root.innerHTML = html;
  root.append(
    codeOf([
      { name: "commits.ts", text: commitsSource },
      { name: "plug-writer.ts", text: plugWriterSource },
      { name: "disk.ts", text: diskSource },
      { name: "plug-disk.ts", text: plugDiskSource },
    ]),
  );
  new WorkerPanel();
  new DiskPanel();
}
