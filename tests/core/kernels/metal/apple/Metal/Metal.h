#pragma once
// The few declarations of Metal that metal_queue.mm uses, as Foundation.h beside it.
#import <Foundation/Foundation.h>

enum MTLLanguageVersion : NSUInteger { MTLLanguageVersion3_0 = (3UL << 16UL) };

struct MTLSize {
  NSUInteger width, height, depth;
};
MTLSize MTLSizeMake(NSUInteger width, NSUInteger height, NSUInteger depth);

@interface MTLCompileOptions : NSObject
- (void)setLanguageVersion:(MTLLanguageVersion)version;
- (void)setFastMathEnabled:(BOOL)enabled;
@end

@protocol MTLBuffer
@end
@protocol MTLFunction
@end

@protocol MTLLibrary
- (id<MTLFunction>)newFunctionWithName:(NSString*)name;
@end

@protocol MTLComputePipelineState
- (NSUInteger)maxTotalThreadsPerThreadgroup;
- (NSUInteger)threadExecutionWidth;
@end

@protocol MTLDevice
- (NSUInteger)maxThreadgroupMemoryLength;
- (id<MTLLibrary>)newLibraryWithSource:(NSString*)source
                               options:(MTLCompileOptions*)options
                                 error:(NSError**)error;
- (id<MTLComputePipelineState>)newComputePipelineStateWithFunction:(id<MTLFunction>)function
                                                             error:(NSError**)error;
@end

@protocol MTLComputeCommandEncoder
- (void)setComputePipelineState:(id<MTLComputePipelineState>)state;
- (void)setBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index;
- (void)setBytes:(const void*)bytes length:(NSUInteger)length atIndex:(NSUInteger)index;
- (void)setThreadgroupMemoryLength:(NSUInteger)length atIndex:(NSUInteger)index;
- (void)dispatchThreadgroups:(MTLSize)groups threadsPerThreadgroup:(MTLSize)threads;
- (void)endEncoding;
@end

@protocol MTLCommandBuffer
- (id<MTLDevice>)device;
- (id<MTLComputeCommandEncoder>)computeCommandEncoder;
@end
