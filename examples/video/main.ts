import { Blobs } from "varve/blobs";
import { connect } from "varve/client";

const db = connect<typeof import("./films").default>("films", {
  worker: () => new Worker(new URL("./films.ts", import.meta.url), { type: "module" }),
});
const films = new Blobs(db);

const input = document.querySelector("input") as HTMLInputElement;
const progress = document.querySelector("progress") as HTMLProgressElement;
const list = document.querySelector("ul") as HTMLUListElement;
const player = document.createElement("video");
const problem = document.querySelector("#problem") as HTMLElement;

player.controls = true;

/** Shows why a call failed, until one succeeds. */
async function attempt(call: () => Promise<unknown>): Promise<void> {
  try {
    await call();
    problem.textContent = "";
  } catch (error) {
    problem.textContent = (error as Error).message;
  }
}

async function show(): Promise<void> {
  const rows: HTMLLIElement[] = [];
  for await (const { key, size } of films.list()) {
    const item = document.createElement("li");
    const play = button(key, () => {
      player.src = `/films/${encodeURIComponent(key)}`;
      list.after(player);
      void player.play().catch(() => {}); // a browser may want a further click
    });
    const remove = button("Remove", () =>
      attempt(async () => {
        await films.delete(key);
        await show();
      }),
    );
    remove.setAttribute("aria-label", `Remove ${key}`);
    item.append(play, ` ${(size / 1e6).toFixed(1)} MB `, remove);
    rows.push(item);
  }
  list.replaceChildren(...rows);
}

function button(text: string, pressed: () => void): HTMLButtonElement {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = text;
  made.addEventListener("click", pressed);
  return made;
}

input.addEventListener("change", () =>
  attempt(async () => {
    const [file] = input.files ?? [];
    if (file === undefined) return;
    progress.hidden = false;
    progress.max = file.size;
    try {
      await films.put(file.name, file, { onProgress: (bytes) => (progress.value = bytes) });
      await navigator.storage.persist(); // so that the browser does not delete films when its disk runs short
    } finally {
      progress.hidden = true;
      input.value = "";
    }
    await show();
  }),
);

const { serviceWorker } = navigator;
const controlled = new Promise((resolve) => {
  serviceWorker.addEventListener("controllerchange", resolve);
});
await serviceWorker.register("/sw.js");
if (serviceWorker.controller === null) {
  await controlled; // on the first visit
  // What the page has loaded before there was a service worker is kept too.
  const files = performance.getEntriesByType("resource").map(({ name }) => name);
  await Promise.all([location.href, ...files].map((file) => fetch(file).catch(() => undefined)));
}
await attempt(show);
input.disabled = false;
