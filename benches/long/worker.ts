import { opfs } from "varve";
import { handleRequests } from "../browser/handle-requests.js";
import { removeAll, turn } from "../browser/platform.js";
import { openSqliteWasm } from "../sizes/browser/sqlite.js";
import { type Environment, runStep, type Step, type StepResult } from "./steps.js";
import { measuredVarve } from "./varve.js";

/** One step of one store, which a worker runs. */
export interface Request {
  store: "varve" | "sqlite";
  memory: number;
  spaceFactor: number;
  step: Step;
}

const FOLDER = "bench-long";

async function sizeOf(folder: FileSystemDirectoryHandle): Promise<number> {
  let sum = 0;
  for await (const entry of folder.values()) {
    if (entry.kind === "directory") sum += await sizeOf(entry as FileSystemDirectoryHandle);
    else sum += (await (entry as FileSystemFileHandle).getFile()).size;
  }
  return sum;
}

function environment({
  store,
  memory,
  spaceFactor,
}: Request): Pick<Environment, "open" | "written"> {
  if (store === "sqlite") {
    return { open: (name) => openSqliteWasm(name, { memory }), written: () => undefined };
  }
  const { open, counts } = measuredVarve(opfs(FOLDER), { memory, spaceFactor });
  return { open, written: () => counts.written };
}

handleRequests<Request | { clear: true }, StepResult | undefined>(async (request, progress) => {
  if ("clear" in request) {
    await removeAll();
    return undefined;
  }
  const { store, step } = request;
  progress(`${store}, ${step.size} keys: ${step.step}`);
  return runStep(step, {
    ...environment(request),
    turn,
    wrap: (buffer, offset, length) => new Uint8Array(buffer, offset, length),
    diskSpace: async () => sizeOf(await navigator.storage.getDirectory()),
  });
});
