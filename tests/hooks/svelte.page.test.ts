/** `varve/svelte` in a component of Svelte 5 on a page. */

import { flushSync, mount, unmount } from "svelte";
import { writable } from "svelte/store";
import { expect, onTestFinished, test } from "vitest";
import { turn, until } from "../support/values.js";
import Products from "./Products.svelte";
import { counted, everySource, fill, key, rename } from "./support.js";

everySource("Svelte", (make) => {
  test("a component shows a list, a value and the status until it is destroyed", async () => {
    const shop = await make();
    await fill(shop, 100);
    const { counts, source } = counted(shop.products);
    const target = document.createElement("div");
    document.body.append(target);
    onTestFinished(() => target.remove());
    const id = writable(key(1));
    const props = { products: source, client: shop.to, id };
    const component = mount(Products, { target, props });
    flushSync();
    expect(target.querySelector("p")?.textContent?.split(": ")[1]).toBe("pending");
    const [text, list] = [target.querySelector("p"), target.querySelector("ul")];
    await until(() => text?.textContent === "open: product 1" && list?.childElementCount === 100);
    const before = [...(list?.children ?? [])];
    let changes = 0;
    const observer = new MutationObserver((all) => {
      changes += all.length;
    });
    observer.observe(list as Element, { childList: true, characterData: true, subtree: true });
    await rename(shop, 50, "changed");
    await until(() => list?.children[50]?.textContent === "changed");
    await turn();
    observer.disconnect();
    expect([changes, before.every((one, i) => one === list?.children[i])]).toStrictEqual([1, true]);
    id.set(key(50));
    await until(() => text?.textContent === "open: changed");
    expect(counts).toStrictEqual({ begun: 3, open: 3 });
    await unmount(component);
    await turn(1_300);
    expect(counts).toStrictEqual({ begun: 3, open: 0 });
  });
});
