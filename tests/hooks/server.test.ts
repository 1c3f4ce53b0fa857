/** Pages that are rendered on a server: nothing is followed there, unless a component suspends. */

import { createElement, Suspense } from "react";
import { renderToReadableStream, renderToString } from "react-dom/server";
import {
  useRange as useReactRange,
  useStatus as useReactStatus,
  useValue as useReactValue,
} from "varve/react";
import { useRange as useSvelteRange } from "varve/svelte";
import {
  useRange as useVueRange,
  useStatus as useVueStatus,
  useValue as useVueValue,
} from "varve/vue";
import { expect, test } from "vitest";
import { createSSRApp, h } from "vue";
import { renderToString as renderVue } from "vue/server-renderer";
import { turn } from "../support/values.js";
import { counted, everySource, fill, key, type Shop } from "./support.js";

function ReactPage({ shop, source }: { shop: Shop; source: Shop["products"] }) {
  const { value, isPending } = useReactValue(source, key(1));
  const { rows } = useReactRange(source, { where: () => true });
  const { state } = useReactStatus(shop.to);
  return [value?.name, isPending, rows.length, state].join();
}

everySource("on a server", (make) => {
  test("React: nothing is known, and nothing is followed", async () => {
    const shop = await make();
    await fill(shop, 3);
    const { counts, source } = counted(shop.products);
    expect(renderToString(createElement(ReactPage, { shop, source }))).toBe(",true,0,idle");
    await turn(50);
    expect(counts.begun).toBe(0);
  });

  test("React: a component that suspends is rendered with its record, and nothing is followed after it", async () => {
    const shop = await make();
    await fill(shop, 3);
    const { counts, source } = counted(shop.products);
    const Name = () =>
      createElement("b", null, useReactValue(source, key(1), { suspense: true }).value?.name);
    const page = createElement(Suspense, { fallback: "wait" }, createElement(Name));
    const stream = await renderToReadableStream(page);
    await stream.allReady;
    const html = await new Response(stream).text();
    expect(/<b>(.*)<\/b>/.exec(html)?.[1]).toBe("product 1");
    expect(counts.begun).toBe(1);
    await turn(1_300);
    expect(counts.open).toBe(0);
  });

  test("Vue: nothing is known, and nothing is followed", async () => {
    const shop = await make();
    await fill(shop, 3);
    const { counts, source } = counted(shop.products);
    const app = createSSRApp({
      setup() {
        const value = useVueValue(source, key(1));
        const range = useVueRange(source, () => ({ where: () => true }));
        const status = useVueStatus(shop.to);
        return () => {
          const { value: product, isPending } = value.value;
          const text = [product?.name, isPending, range.value.rows.length, status.value.state];
          return h("p", text.join());
        };
      },
    });
    expect(await renderVue(app)).toBe("<p>,true,0,open</p>");
    await turn(50);
    expect(counts.begun).toBe(0);
  });

  test("Svelte: a store that is read and left begins nothing", async () => {
    const shop = await make();
    const { counts, source } = counted(shop.products);
    let rows: readonly unknown[] | undefined;
    useSvelteRange(source).subscribe((result) => {
      rows = result.rows;
    })();
    await turn(50);
    expect([rows, counts.begun]).toStrictEqual([[], 0]);
  });
});
