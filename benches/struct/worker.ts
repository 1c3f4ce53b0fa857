import * as flatbuffers from "flatbuffers";
import * as msgpackr from "msgpackr";
import { handleRequests } from "../browser/handle-requests.js";
import type { Measured } from "./measure.js";
import { type Request, work } from "./work.js";

handleRequests<Request, Measured[]>((request) => work(request, { msgpackr, flatbuffers }));
