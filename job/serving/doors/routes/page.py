"""The page for people, and the reference of the API: `/`, `/docs` and their files."""

from __future__ import annotations

from fastapi import Request, Response

from freshet.job.serving.doors.routes.registration import Routes
from freshet.job.serving.page.files import PageFile, page_files


def add(routes: Routes) -> None:
    """Add GET and HEAD of each file; any other path below /assets/ stays unknown."""
    for path, file in page_files().items():
        _add_one(routes, path, file)


def _add_one(routes: Routes, path: str, file: PageFile) -> None:
    async def answered(request: Request) -> Response:
        zips = "gzip" in request.headers.get("accept-encoding", "")
        tag = f'"{file.tag}{"-gz" if zips else ""}"'
        headers = file.headers(tag)
        known = request.headers.get("if-none-match", "")
        if known == "*" or tag in (one.strip().removeprefix("W/") for one in known.split(",")):
            return Response(None, 304, headers)
        if zips:
            headers["Content-Encoding"] = "gzip"
        return Response(file.zipped if zips else file.content, 200, headers, media_type=file.media_type)

    for method in ("GET", "HEAD"):
        routes.hidden(method, path, answered)
