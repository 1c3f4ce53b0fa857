/**
 * The shared worker that passes the ports of clients to the page of the present owner. Its program is the file
 * of the owner's worker: that URL is the same in every tab, whatever a bundler does, and no policy of the page
 * refuses it, since the worker runs.
 */

import { trusted } from "./trusted-types.js";
import type { Program } from "./worker-messages.js";

/** The part of a shared worker's scope that is used. */
interface SharedScope {
  readonly name: string;
  addEventListener(type: "connect", listener: (event: MessageEvent) => void): void;
}

/** Relays ports if this realm is a shared worker that a client has started for that. */
export function carryPorts(): void {
  const scope = globalThis as unknown as SharedScope;
  // A program's own shared workers have another name, or none.
  if (!("SharedWorkerGlobalScope" in globalThis) || !scope.name.startsWith("varve:")) return;
  let owner: unknown;
  let page: MessagePort | undefined;
  scope.addEventListener("connect", ({ ports: [port] }) => {
    if (port === undefined) return;
    port.onmessage = ({ data, ports: [visitor] }) => {
      if (visitor !== undefined) {
        if (data === owner) page?.postMessage(0, [visitor]);
      } else {
        owner = data;
        page = port;
      }
    };
  });
}

/** The program of this worker, if other tabs can start it as a shared worker. */
export function workerProgram(): Program | undefined {
  const { location, importScripts } = globalThis as {
    location?: { readonly href: string };
    importScripts?: (...urls: string[]) => void;
  };
  // A blob has a URL that is valid in one tab only.
  if (location === undefined || /^(blob|data):/.test(location.href)) return undefined;
  let isModule = false;
  try {
    // Throws a TypeError in a module; in Firefox only with a URL. This URL is invalid, so nothing is fetched,
    // and it has to pass Trusted Types where they are required.
    importScripts?.();
    importScripts?.(trusted("http://:"));
  } catch (refusal) {
    isModule = refusal instanceof TypeError;
  }
  return { url: location.href, type: isModule ? "module" : "classic" };
}
