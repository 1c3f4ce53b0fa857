import { messageOf } from "../race/messages.js";

/** A panel's module: fills its part of the page, once. */
interface Panel {
  mount(root: HTMLElement): void | Promise<void>;
}

/** The panels beside the race, by the id of their section. Each is loaded when it is first shown. */
const PANELS: Readonly<Record<string, () => Promise<Panel>>> = {
  drop: () => import("./drop/panel.js"),
  plug: () => import("./plug/panel.js"),
  inside: () => import("../inspect/panel.js"),
};

const mounted = new Set<string>();

/** Resolves when the panels' style is there: until one is shown, the page does without it. */
let style: Promise<void> | undefined;

function loadStyle(): Promise<void> {
  style ??= new Promise((resolve, reject) => {
    const link = document.createElement("link");
    link.rel = "stylesheet";
    link.href = new URL("./panels.css", import.meta.url).href;
    link.onload = () => resolve();
    link.onerror = () => {
      style = undefined;
      reject(new Error("panels.css could not be loaded"));
    };
    document.head.append(link);
  });
  return style;
}

async function mount(id: string, load: () => Promise<Panel>): Promise<void> {
  const root = document.querySelector<HTMLElement>(`#${id} > .mount`);
  if (root === null || mounted.has(id)) return;
  mounted.add(id);
  try {
    const [panel] = await Promise.all([load(), loadStyle()]);
    await panel.mount(root);
  } catch (error) {
    mounted.delete(id);
    const box = document.createElement("p");
    box.setAttribute("role", "alert");
    box.textContent = `This panel could not be loaded: ${messageOf(error)}. Load the page again.`;
    root.replaceChildren(box);
  }
}

function show(): void {
  const wanted = location.hash.slice(1);
  const load = Object.hasOwn(PANELS, wanted) ? PANELS[wanted] : undefined;
  const current = load === undefined ? "race" : wanted;
  for (const link of document.querySelectorAll<HTMLAnchorElement>("nav a")) {
    if (link.hash === `#${current}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const title = document.querySelector(`#${current} h1`)?.textContent;
  document.title = `${title} · varve`;
  if (load !== undefined) void mount(wanted, load);
}

/** Shows the panel that the page's address names, now and whenever that changes. */
export function showPanels(): void {
  addEventListener("hashchange", show);
  show();
}
