// What all modules take from the library, in one place.
export {
  html, render, useState, useEffect, useLayoutEffect, useRef, useMemo, useCallback,
} from "../vendor/htm-preact.module.js";
