// The camera: frame after frame is sent, what was read is drawn over it.

import { $, drawBoxes, read, tokens } from "./common.js";
import { add } from "./app.js";

const SIDE = 640; // long side of a frame that is sent, in pixels: that of neocog live
const FRAMES = 5, AGREE = 3; // a number is shown when 3 of the last 5 frames agree
const video = $("video"), canvas = document.createElement("canvas");
let stream = null, recent = [];

for (const button of [$("show-pictures"), $("show-camera")])
  button.onclick = () => show(button === $("show-camera"));

function show(camera) {
  $("camera").hidden = !camera;
  $("pictures").hidden = camera;
  $("show-camera").ariaPressed = camera;
  $("show-pictures").ariaPressed = !camera;
  if (camera) start();
  else stop();
}

async function start() {
  if (!navigator.mediaDevices) {
    $("camera-said").textContent = "Browsers give the camera only to https, and to the computer " +
      "that runs neocog: start neocog serve with --certificate, or take a photograph under Pictures.";
    return;
  }
  try {
    stream = await navigator.mediaDevices.getUserMedia(
      { video: { facingMode: "environment", width: { ideal: 1280 } } });
  } catch (error) {
    $("camera-said").textContent = error.name === "NotAllowedError"
      ? "The browser was told not to use the camera; allow it beside the address."
      : "No camera was found.";
    return;
  }
  if ($("camera").hidden) return stop();
  video.srcObject = stream;
  await video.play();
  $("take").hidden = false;
  watch(stream);
}

function stop() {
  for (const track of stream?.getTracks() ?? []) track.stop();
  stream = null;
  recent = [];
  $("take").hidden = true;
}

function frame(side) {
  const scale = Math.min(1, side / Math.max(video.videoWidth, video.videoHeight));
  canvas.width = Math.round(video.videoWidth * scale);
  canvas.height = Math.round(video.videoHeight * scale);
  canvas.getContext("2d").drawImage(video, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => canvas.toBlob(done, "image/jpeg", 0.9));
}

async function watch(mine) {
  while (stream === mine) {
    const start = performance.now();
    try {
      const [record] = await read(await frame(SIDE), "camera", "&live=1");
      if (stream !== mine) return;
      const shown = tokens(record).filter((token) => token.box);
      drawBoxes(video.parentNode, shown, [canvas.width, canvas.height]);
      recent = [...recent, record.text].slice(-FRAMES);
      const votes = recent.filter((text) => text === record.text).length;
      if (votes >= AGREE) $("number").textContent = record.text;
      const took = Math.round(performance.now() - start);
      $("camera-said").textContent = `${took} ms a frame`;
    } catch (error) {
      $("camera-said").textContent = `The frame ${error.message}`;
      await new Promise((done) => setTimeout(done, 1000));
    }
    await new Promise(requestAnimationFrame);
  }
}

$("take").onclick = async () => {
  const now = new Date().toISOString().slice(0, 19).replace("T", " ").replaceAll(":", ".");
  const file = new File([await frame(Infinity)], `camera ${now}.jpg`, { type: "image/jpeg" });
  add([{ file, name: file.name }]);
  show(false);
};
