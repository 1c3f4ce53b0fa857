/** The product drop in any number of tabs. */

import { messageOf } from "../../race/messages.js";
import { codeOf } from "../code.js";
import { CheckList, counted, element, figure, milliseconds, say } from "../elements.js";
import dbSource from "./drop-db.ts?raw";
import html from "./panel.html?raw";
import { Buyers, killWorker, shop } from "./shop.js";
import shopSource from "./shop.ts?raw";
import { livingTabs, nameThisTab, onKill, sendKill, sharedNow, type ThisTab } from "./tabs.js";

const shoes = shop.collection("shoes");
const tabs = shop.collection("tabs");
const owners = shop.collection("owners");

type Shoe = NonNullable<Awaited<ReturnType<typeof shoes.get>>>;
type Tab = NonNullable<Awaited<ReturnType<typeof tabs.get>>>;
type Owner = NonNullable<Awaited<ReturnType<typeof owners.get>>>;

/** How often the sum is checked while a drop runs. */
const CHECK_MS = 250;

const [SUM, ANSWERS, INTACT] = [0, 1, 2];
const CLAIMS = [
  "What is left and what was sold make up what there was",
  "Every answer “bought” is one sold pair, in every tab",
  "The file is intact: verify() read all of it",
];

function cell(kind: "td" | "th", text: string): HTMLTableCellElement {
  const made = document.createElement(kind);
  if (kind === "th") made.scope = "row";
  made.textContent = text;
  return made;
}

class DropPanel {
  readonly #start = element("drop-start", HTMLButtonElement);
  readonly #kill = element("drop-kill", HTMLButtonElement);
  readonly #pairs = element("drop-pairs", HTMLSelectElement);
  readonly #buyerCount = element("drop-buyers", HTMLSelectElement);
  readonly #status = element("drop-status", HTMLParagraphElement);
  readonly #bar = element("drop-bar", HTMLProgressElement);
  readonly #rows = element("drop-tabs", HTMLTableSectionElement);
  readonly #log = element("drop-owners", HTMLOListElement);
  readonly #checks = new CheckList(element("drop-checks", HTMLUListElement), CLAIMS);

  #shoe: Shoe | undefined;
  /** Whether the stock was read since this tab began. */
  #isKnown = false;
  #tabs: [string, Tab][] = [];
  #owners: [number, Owner][] = [];
  #living = new Set<string>();
  /** This tab's buyers in the drop that runs. */
  #buyers: Buyers | undefined;
  #killedAt: number | undefined;
  #isDrawing = false;
  #wasOwner = false;
  /** Whether any owner has answered this tab. */
  #wasOpen = false;
  /** The number of the drop whose sums are checked, and how many were right. */
  #sums = { drop: 0, right: 0, wrong: "" };
  /** The number of the drop whose end was checked. */
  #ended = 0;

  constructor(readonly tab: ThisTab) {
    say(element("drop-tab", HTMLElement), `tab ${tab.name}`);
    this.#start.addEventListener("click", () => this.#attempt(() => this.#startOrStop()));
    this.#kill.addEventListener("click", () => this.#killOwner());
    onKill((at) => this.#onKill(at));
    shop.addEventListener("status", () => this.#onStatus());
    shoes.live({ gte: "yeezy", lte: "yeezy" }, (rows) => this.#onShoe(rows[0]?.[1]));
    tabs.live({}, (rows) => {
      this.#tabs = rows;
      this.#draw();
    });
    owners.live({ reverse: true, limit: 4 }, (rows) => {
      // The kill has its successor, so the next owner is that of another end.
      if (rows[0]?.[0] !== this.#owners[0]?.[0]) this.#killedAt = undefined;
      this.#owners = rows;
      this.#draw();
    });
    setInterval(() => this.#attempt(() => this.#check()), CHECK_MS);
    this.#onStatus();
  }

  async #attempt(work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      say(this.#status, `That failed: ${messageOf(error)}`);
    }
  }

  get #isRunning(): boolean {
    return this.#shoe?.onSale === true && this.#shoe.stock > 0;
  }

  async #startOrStop(): Promise<void> {
    if (this.#isRunning && this.#buyers === undefined) this.#join();
    else if (this.#isRunning) await shop.call.stop();
    else await shop.call.start(Number(this.#pairs.value));
  }

  #onShoe(shoe: Shoe | undefined): void {
    const isNew = shoe?.drop !== this.#shoe?.drop;
    const isFirst = !this.#isKnown;
    this.#isKnown = true;
    this.#shoe = shoe;
    if (isNew) this.#buyers = undefined;
    // A drop that was interrupted goes on only when that is asked for.
    if (isNew && this.#isRunning && (!isFirst || this.tab.isLater)) this.#join();
    this.#draw();
  }

  /** Sends this tab's buyers into the drop that runs. */
  #join(): void {
    const drop = this.#shoe?.drop ?? 0;
    const buyers = new Buyers(drop, this.tab.id, this.tab.name);
    this.#buyers = buyers;
    this.#attempt(() => buyers.run(Number(this.#buyerCount.value)));
    this.#draw();
  }

  #killOwner(): void {
    if (shop.status.state !== "open") return;
    this.#onKill(sendKill());
    say(this.#status, "The worker that owned the file was killed.");
  }

  #onKill(at: number): void {
    this.#killedAt = at;
    if (shop.status.owner === "here") killWorker();
  }

  #onStatus(): void {
    const { state, owner } = shop.status;
    const isOwner = state === "open" && owner === "here";
    if (isOwner && !this.#wasOwner) {
      const isFirst = !this.#wasOpen && !this.tab.isLater;
      this.#attempt(() => this.#announce(isFirst));
    }
    this.#wasOwner = isOwner;
    this.#wasOpen ||= state === "open";
    this.#draw();
  }

  /** Notes in the database that its file belongs to this tab's worker now. */
  async #announce(isFirst: boolean): Promise<void> {
    const [last] = await owners.entries({ reverse: true, limit: 1 }).all();
    // Its answer to this was one of the first.
    const tookMs = this.#killedAt === undefined ? undefined : sharedNow() - this.#killedAt;
    this.#killedAt = undefined;
    if (isFirst) await owners.clear();
    const before = isFirst ? undefined : last?.[1].name;
    await owners.set((last?.[0] ?? 0) + 1, { name: this.tab.name, before, tookMs });
  }

  async #check(): Promise<void> {
    this.#living = await livingTabs();
    this.#draw();
    const shown = this.#shoe;
    if (shown === undefined || shown.drop === this.#ended || shop.status.state !== "open") return;
    const { shoe, bought } = await shop.call.count();
    if (shoe === undefined) return;
    if (this.#sums.drop !== shoe.drop) {
      this.#sums = { drop: shoe.drop, right: 0, wrong: "" };
      this.#checks.reset();
    }
    const sold = bought.reduce((sum, one) => sum + one, 0);
    const text = `${figure(shoe.atStart)} = ${figure(shoe.stock)} left + ${figure(sold)} sold`;
    if (shoe.stock + sold === shoe.atStart) this.#sums.right += 1;
    else
      this.#sums.wrong = `${text.replace("=", "is not")}, difference ${shoe.stock + sold - shoe.atStart}`;
    const { right, wrong } = this.#sums;
    this.#checks.set(
      SUM,
      wrong === "" ? "ok" : "failed",
      wrong === "" ? `${text}; so it was each of ${counted(right, "time")}.` : `${wrong}.`,
    );
    if (!shoe.onSale || shoe.stock === 0) await this.#checkEnd(shoe.drop);
  }

  /** Checks what holds once no purchase is under way: the tabs that live have reported their answers. */
  async #checkEnd(drop: number): Promise<void> {
    const entries = await tabs.entries().all();
    const rows = entries.map(([, tab]) => tab);
    const living = entries.filter(([id]) => this.#living.has(id)).map(([, tab]) => tab);
    const waiting = living.filter(({ bought, answered }) => answered < bought);
    const over = rows.filter(({ bought, answered }) => answered > bought);
    if (over.length > 0) {
      const names = over.map(({ name }) => `tab ${name}`).join(", ");
      this.#checks.set(ANSWERS, "failed", `More answers than sold pairs: ${names}.`);
    } else if (waiting.length > 0) {
      const names = waiting.map(({ name }) => `tab ${name}`).join(", ");
      this.#checks.set(ANSWERS, "open", `Waiting for the last answers of ${names}.`);
      return;
    } else {
      const answers = living.reduce((sum, { answered }) => sum + answered, 0);
      this.#checks.set(
        ANSWERS,
        "ok",
        `${figure(answers)} answers of ${counted(living.length, "tab")}.`,
      );
    }
    if (this.#ended === drop) return;
    this.#ended = drop;
    const { ok, problems, bytes, frames } = await shop.verify();
    this.#checks.set(
      INTACT,
      ok ? "ok" : "failed",
      ok
        ? `${counted(bytes, "byte")}, ${counted(frames, "frame")}.`
        : `${counted(problems.length, "problem")}.`,
    );
    const left = this.#shoe?.stock === 0 ? "Sold out" : "Stopped";
    say(this.#status, `${left}. The sums are checked.`);
  }

  /** Draws once a frame at most. */
  #draw(): void {
    if (this.#isDrawing) return;
    this.#isDrawing = true;
    requestAnimationFrame(() => {
      this.#isDrawing = false;
      this.#drawNow();
    });
  }

  #drawNow(): void {
    const shoe = this.#shoe;
    const { state, owner, reason } = shop.status;
    say(element("drop-left", HTMLElement), shoe === undefined ? "–" : figure(shoe.stock));
    this.#bar.value = shoe === undefined ? 0 : 1 - shoe.stock / Math.max(1, shoe.atStart);
    const isJoined = this.#buyers !== undefined;
    say(
      this.#start,
      !this.#isRunning ? "Start the drop" : isJoined ? "Stop the drop" : "Go on with the drop",
    );
    this.#pairs.disabled = this.#isRunning;
    this.#buyerCount.disabled = this.#isRunning && isJoined;
    // Not disabled, so that it keeps the focus.
    this.#kill.setAttribute("aria-disabled", String(state !== "open"));
    const [newest] = this.#owners;
    const name = owner === "here" ? this.tab.name : newest?.[1].name;
    say(
      element("drop-owner", HTMLElement),
      state === "open"
        ? `${name === undefined ? "another tab" : `tab ${name}`}${owner === "here" ? " (this)" : ""}`
        : (reason ?? state),
    );
    const took = this.#owners.find(([, { tookMs }]) => tookMs !== undefined)?.[1].tookMs;
    say(element("drop-took", HTMLElement), took === undefined ? "none yet" : milliseconds(took));
    this.#drawTabs();
    this.#drawOwners();
  }

  #drawTabs(): void {
    const rows = this.#tabs.map(([id, { name, bought, answered, longestMs }]) => {
      const row = document.createElement("tr");
      const note = id === this.tab.id ? " (this)" : this.#living.has(id) ? "" : " (closed)";
      row.append(
        cell("th", `Tab ${name}${note}`),
        cell("td", figure(bought)),
        cell("td", figure(answered)),
        cell("td", milliseconds(longestMs)),
      );
      return row;
    });
    this.#rows.replaceChildren(...rows);
  }

  #drawOwners(): void {
    // The log is read out as it grows, so what is there stays.
    const oldestFirst = [...this.#owners].reverse();
    const known = new Set(oldestFirst.map(([number]) => String(number)));
    for (const item of [...this.#log.children]) {
      if (!known.has(item.getAttribute("data-number") ?? "")) item.remove();
    }
    for (const [number, { name, before, tookMs }] of oldestFirst) {
      if (this.#log.querySelector(`[data-number="${number}"]`) !== null) continue;
      const item = document.createElement("li");
      item.setAttribute("data-number", String(number));
      item.textContent =
        before === undefined
          ? `Tab ${name} opened the file.`
          : tookMs === undefined
            ? `Tab ${name} took over from tab ${before}, which ended.`
            : before === name
              ? `The worker of tab ${name} was killed; its next one answered after ${milliseconds(tookMs)}.`
              : `The worker of tab ${before} was killed; tab ${name} took over and answered after ${milliseconds(tookMs)}.`;
      this.#log.prepend(item);
    }
  }
}

export async function mount(root: HTMLElement): Promise<void> {
  const tab = await nameThisTab();
  root.innerHTML = html;
  root.append(
    codeOf([
      { name: "drop-db.ts", text: dbSource },
      { name: "shop.ts", text: shopSource },
    ]),
  );
  new DropPanel(tab);
}
