import { readFileSync } from "node:fs";

/** Instantiates a module of benches/. It imports the engine's host functions, which nothing here calls. */
export async function instantiateAlone<Exports>(path: string): Promise<Exports> {
  const module = await WebAssembly.compile(readFileSync(path));
  const imports: Record<string, Record<string, () => never>> = {};
  for (const { module: from, name } of WebAssembly.Module.imports(module)) {
    imports[from] ??= {};
    imports[from][name] = () => {
      throw new Error(`${from}.${name} was called`);
    };
  }
  const { exports } = await WebAssembly.instantiate(module, imports);
  return exports as unknown as Exports;
}
