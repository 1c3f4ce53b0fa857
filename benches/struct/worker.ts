import * as flatbuffers from "flatbuffers";
import * as msgpackr from "msgpackr";
import { answer } from "../browser/answer.js";
import type { Measured } from "./measure.js";
import { type Request, work } from "./work.js";

answer<Request, Measured[]>((request) => work(request, { msgpackr, flatbuffers }));
