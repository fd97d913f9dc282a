"""Convs of PyG that read several kinds or types themselves, as convs on relations with layers of rows around."""
