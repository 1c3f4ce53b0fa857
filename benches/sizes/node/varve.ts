import { file, open } from "varve";
import type { OpenStore } from "../store.js";
import { varveStore } from "../varve.js";

export const openVarve: OpenStore = async (folder, { memory }) => {
  const db = await open("sizes", { storage: file(folder), memory });
  const remarks = ["varve: flushed by flush(), each second and with each group."];
  return { ...varveStore(db, memory), remarks };
};
