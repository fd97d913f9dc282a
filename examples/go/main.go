// Read embeddings over Arrow Flight: go run . HOST:PORT ID...
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
)

func main() {
	if len(os.Args) < 3 {
		log.Fatal("usage: read HOST:PORT ID...")
	}
	client, err := flight.NewClientWithMiddleware(os.Args[1], nil, nil,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx := context.Background()
	if token := os.Getenv("FRESHET_TOKEN"); token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	// Integers may be written as strings, so that one program reads ids of both kinds.
	ticket, err := json.Marshal(map[string]any{"ids": os.Args[2:], "logits": true})
	if err != nil {
		log.Fatal(err)
	}
	stream, err := client.DoGet(ctx, &flight.Ticket{Ticket: ticket})
	if err != nil {
		log.Fatal(err)
	}
	reader, err := flight.NewRecordReader(stream)
	if err != nil {
		log.Fatal(err)
	}
	defer reader.Release()
	meta := reader.Schema().Metadata()
	if at := meta.FindKey("epoch"); at >= 0 {
		fmt.Fprintln(os.Stderr, "epoch", meta.Values()[at])
	}
	for reader.Next() {
		batch := reader.RecordBatch()
		rows := batch.Column(2).(*array.FixedSizeList)
		values := rows.ListValues().(*array.Float32).Float32Values()
		for k := 0; k < int(batch.NumRows()); k++ {
			begin, end := rows.ValueOffsets(k)
			fmt.Println(batch.Column(0).ValueStr(k), batch.Column(1).ValueStr(k), values[begin:end])
		}
	}
	if err := reader.Err(); err != nil {
		log.Fatal(err)
	}
}
